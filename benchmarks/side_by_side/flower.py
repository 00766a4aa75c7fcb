"""Flower's own deployment on this machine: SuperLink and SuperNodes, insecure, on loopback.

Everything at Flower's defaults but this: no telemetry, no look for updates, no installation of
dependencies (there is no internet), its files in a folder of ours.
"""

import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from side_by_side.processes import BenchmarkFailed, Processes, free_ports, processes, used
from side_by_side.timing import RunTimes, from_ends

START_LIMIT_S = 90.0
NODES = 3
ENOUGH_ROUNDS = 2
"""The first, which is counted apart, and one more."""
BIN = Path(sys.executable).parent


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds of a run after which two rounds are enough, and after which it has failed."""

    enough_s: float
    fail_s: float


class Flower:
    """A SuperLink with three SuperNodes."""

    def __init__(self, group: Processes, folder: Path, app: Path) -> None:
        self._group = group
        self._folder = folder
        self._app = app
        self._runs = 0
        self._port, *self._node_ports = free_ports(1 + NODES)

    def launch(self) -> None:
        """Start everything; `ready` waits for it."""
        home = self._folder / "home"
        home.mkdir()
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n\n[superlink.here]\n'
            f'address = "127.0.0.1:{self._port}"\ninsecure = true\n',
            encoding="utf-8",
        )
        link = [str(BIN / "flower-superlink"), "--insecure", "--host", "127.0.0.1"]
        link += ["--port", str(self._port), "--disable-runtime-dependency-installation"]
        self._group.start("superlink", link)

    def ready(self) -> None:
        """Wait for the SuperLink, then start the SuperNodes and wait for those."""
        self._wait_for_health(self._port)
        for number, port in enumerate(self._node_ports):
            node = [str(BIN / "flower-supernode"), "--insecure", "--port", str(port)]
            node += ["--superlink", f"127.0.0.1:{self._port}"]
            self._group.start(f"supernode-{number}", node)
        for port in self._node_ports:
            self._wait_for_health(port)

    def run(self, *, rounds: int, elements: int, limits: Limits) -> RunTimes:
        """Submit a run and return its times; the sums are checked.

        Once `limits.enough_s` seconds have passed, two rounds are enough.
        """
        self._runs += 1
        report = self._folder / f"timings-{self._runs}.json"
        config = f"num-server-rounds={rounds} num-nodes={NODES} elements={elements}"
        config += f" timings='{report}'"
        before, begun = self._group.usage(), time.monotonic()
        self._group.call(
            [str(BIN / "flwr"), "run", str(self._app), "here", "--run-config", config],
            limit_s=60.0,
        )

        def finished() -> bool:
            done = len(_read(report)["ends"])
            late = time.monotonic() - begun > limits.enough_s
            return done == rounds or (late and done >= ENOUGH_ROUNDS)

        self._group.wait(finished, what="flwr's run", limit_s=limits.fail_s)
        found = _read(report)
        cpu_s = used(before, self._group.usage())
        done = len(found["ends"])
        if found["replies"] != [NODES] * done or found["smallest"] != list(range(1, done + 1)):
            raise BenchmarkFailed(f"flwr's run came to {found}, expected 1 more in every round")
        return from_ends(found["started"], found["ends"], cpu_s=cpu_s)

    def _wait_for_health(self, port: int) -> None:
        def answers() -> bool:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2.0):
                    return True
            except urllib.error.HTTPError:
                return True  # it answers
            except OSError:
                return False

        self._group.wait(answers, what=f"Flower's port {port}", limit_s=START_LIMIT_S)


def _read(report: Path) -> dict[str, Any]:
    if not report.is_file():
        return {"ends": []}
    found: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return found


@contextmanager
def flower(folder: Path, *, app: Path) -> Iterator[Flower]:
    """Start Flower's deployment in `folder`; it is ended at the end."""
    environment = {
        "FLWR_HOME": str(folder / "home"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "PATH": f"{BIN}:/usr/bin:/bin",  # it starts its parts by name
        "OMP_NUM_THREADS": "1",
    }
    with processes(folder, environment=environment) as group:
        deployment = Flower(group, folder, app)
        deployment.launch()
        yield deployment
