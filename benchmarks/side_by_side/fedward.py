"""fedward on this machine: a coordinator and three agents, with everything on that a site gets.

Signatures, digests, audit logs and fsync are on; there is no switch for them here.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from fedward.cli.bundle import write_bundle
from fedward.cli.errors import CliError
from fedward.cli.http import Api
from fedward.client.agent import enrol
from fedward.protocol.arrays import decode, encode
from side_by_side.processes import BenchmarkFailed, Processes, processes, used
from side_by_side.timing import RunTimes, from_ends

START_LIMIT_S = 60.0
LOOK_S = 0.5
SITES = ("site-0", "site-1", "site-2")
ENDED = frozenset({"completed", "failed", "stopped"})
AGENT = """\
coordinator = "{url}"
site = "{site}"
state = "state"
device = "cpu"

[accept]
apps = ["{app}"]
"""


class Fedward:
    """A coordinator with three agents."""

    def __init__(self, group: Processes, folder: Path, app: Path) -> None:
        self.group = group
        self._folder = folder
        self._app = app
        self._log = Path()
        self._api: Api | None = None
        self._bundle = ""
        self._models: dict[int, str] = {}

    def launch(self) -> None:
        """Start the coordinator; `ready` waits for it."""
        data = str(self._folder / "coordinator")
        self._log = self.group.start("coordinator", _fedward("serve", "--data", data, "--port=0"))

    def ready(self) -> None:
        """Wait for the coordinator, enrol the sites and start their agents."""
        line = self.group.wait_for_line
        token = line(self._log, "admin token, shown only this once:", limit_s=START_LIMIT_S)
        url = line(self._log, "coordinator listening on", limit_s=START_LIMIT_S).split()[0]
        self._api = Api(url, token)  # the admin's; models are for operators
        self.group.wait(self._answers, what="the coordinator", limit_s=START_LIMIT_S)
        self._bundle = self._upload_app()
        for site in SITES:
            self._start_agent(site)
        self.api.post(
            "/studies",
            {
                "study": "benchmark",
                "purpose": "Benchmark: how long is a round without training?",
                "legal_basis": "no data",
                "sites": list(SITES),
                "expires": "2099-12-31T23:59:59.000000Z",
            },
        )
        made = self.api.post("/tokens", {"name": "bench", "role": "operator", "ttl_s": 86_400})
        self.close()
        self._api = Api(url, str(made["secret"]))

    @property
    def api(self) -> Api:
        """Return the operator's connection."""
        if self._api is None:
            raise BenchmarkFailed("the coordinator was not started")
        return self._api

    def close(self) -> None:
        """Close the operator's connection."""
        if self._api is not None:
            self._api.close()

    def run(
        self,
        *,
        rounds: int,
        elements: int,
        limit_s: float,
        beside: Callable[[], None] | None = None,
    ) -> RunTimes:
        """Make a run and return its times; the sums are checked.

        Args:
            beside: called once as soon as the first round has ended.
        """
        plan = self.api.post("/plans", self._plan(rounds, elements))["digest"]
        run = str(self.api.post("/runs", {"plan": plan})["run"])
        before = self.group.usage()
        self.api.post(f"/runs/{run}/start")
        end = time.monotonic() + limit_s
        while (view := self.api.get(f"/runs/{run}"))["status"] not in ENDED:
            self.group.check()
            if time.monotonic() > end:
                raise BenchmarkFailed(f"fedward's run: not completed after {limit_s:.0f} s: {view}")
            if beside is not None and view["round"] > 1:
                beside()
                beside = None
            time.sleep(LOOK_S)
        cpu_s = used(before, self.group.usage())
        if view["status"] != "completed":
            raise BenchmarkFailed(f"fedward's run ended as {view}")
        self._check_sums(view["model"], rounds)
        return self._times(run, rounds, cpu_s)

    def _times(self, run: str, rounds: int, cpu_s: dict[str, float]) -> RunTimes:
        views = self.api.get_all(f"/runs/{run}/rounds")
        attempts = [attempt for view in views for attempt in view["attempts"]]
        if len(attempts) != rounds or any(len(a["took_part"]) != len(SITES) for a in attempts):
            raise BenchmarkFailed(f"fedward's run: got {attempts}, expected all sites once a round")
        ends = [_seconds(attempt["closed"]) for attempt in attempts]
        return from_ends(_seconds(attempts[0]["opened"]), ends, cpu_s=cpu_s)

    def _answers(self) -> bool:
        try:
            self.api.get("/audit/head")
        except CliError:
            return False
        return True

    def _upload_app(self) -> str:
        bundle = self._folder / "app.zip"
        write_bundle(self._app, bundle)
        view = self.api.upload("/apps", bundle, media_type="application/zip", moved=_ignore)
        return str(view["digest"])

    def _start_agent(self, site: str) -> None:
        invitation = self.api.post(
            "/sites/invite", {"site": site, "organisation": site, "ttl_s": 600}
        )
        home = self._folder / site
        enrol(self.api.url, invitation["invite"], home / "state")
        config = home / "agent.toml"
        text = AGENT.format(url=self.api.url, site=site, app=self._bundle)
        config.write_text(text, encoding="utf-8")
        self.group.start(site, _fedward("agent", "run", "--config", str(config)))

    def _plan(self, rounds: int, elements: int) -> dict[str, Any]:
        return {
            "name": "add one",
            "study": "benchmark",
            "app": {"bundle": self._bundle},
            "model": self._initial_model(elements),
            "rounds": {"count": rounds, "quorum": len(SITES)},
            "evaluate": {"every": 0},
        }

    def _initial_model(self, elements: int) -> str:
        if elements not in self._models:
            file = self._folder / "initial.safetensors"
            sys.path.insert(0, str(self._app))
            from add_one.task import initial_arrays  # the app's own, as --initial would take it

            sys.path.remove(str(self._app))
            with file.open("wb") as out:
                out.writelines(encode(initial_arrays(elements)))
            view = self.api.upload(
                "/models", file, media_type="application/octet-stream", moved=_ignore
            )
            file.unlink()
            self._models[elements] = str(view["digest"])
        return self._models[elements]

    def _check_sums(self, digest: str, rounds: int) -> None:
        file = self._folder / "final.safetensors"
        self.api.download(f"/models/{digest}/content", file, digest=digest, moved=_ignore)
        for name, array in decode(file.read_bytes()).items():
            if not np.array_equal(array, np.full_like(array, rounds)):
                raise BenchmarkFailed(f"array {name}: got {array[:3]}…, expected {rounds}")
        file.unlink()


@contextmanager
def fedward(folder: Path, *, app: Path) -> Iterator[Fedward]:
    """Start a coordinator in `folder`; everything is ended at the end."""
    environment = {
        "OMP_NUM_THREADS": "1",
        "FEDWARD_TORCH_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
    }
    for name in [name for name in os.environ if name.startswith("FEDWARD_TOKEN")]:
        environment[name] = ""
    with processes(folder, environment=environment) as group:
        federation = Fedward(group, folder, app)
        federation.launch()
        try:
            yield federation
        finally:
            federation.close()


def _fedward(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "fedward.cli", *arguments]


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()


def _ignore(_: int) -> None:
    """Take no notice of the progress of a transfer."""
