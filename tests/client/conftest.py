"""A coordinator that behaves (`fake_coordinator.py`), and a site that is enrolled with it.

The site's agent is the real one; its worker is `behaving_worker.py`.
"""

import asyncio
import importlib.util
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from fedward.client import agent as agent_module
from fedward.client.settings import load_settings

HERE = Path(__file__).parent


def _load(name: str):
    """Import a module that lies beside this one; the test folders are no packages."""
    spec = importlib.util.spec_from_file_location(f"client_{name}", HERE / f"{name}.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


fake_coordinator = _load("fake_coordinator")


@pytest.fixture
def coordinator():
    """Yield a FakeCoordinator with its `url`."""
    fake = fake_coordinator.FakeCoordinator()
    server = ThreadingHTTPServer(("127.0.0.1", 0), fake_coordinator.Handler)
    server.daemon_threads = True
    server.fake, fake.server = fake, server
    fake.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield fake
    server.shutdown()
    server.server_close()
    thread.join()


@dataclass
class Site:
    """A site with its own folder; `trainings` tells how often its app was run."""

    folder: Path
    coordinator: object

    def write_settings(self, more: str = "") -> None:
        (self.folder / "agent.toml").write_text(
            f'coordinator = "{self.coordinator.url}"\nsite = "north"\nstate = "state"\n{more}\n'
            "[network]\npoll_s = 5\ntimeout_s = 5\n"
            '[datasets.ehr]\npath = "rows.csv"\n'
            f'[datasets.ehr.node_config]\nlog = "{self.log}"\n'
        )

    @property
    def log(self) -> Path:
        return self.folder / "trainings.log"

    @property
    def settings(self):
        return load_settings(self.folder / "agent.toml")

    @property
    def command(self) -> list[str]:
        return [sys.executable, str(HERE / "behaving_worker.py")]

    @property
    def trainings(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def records(self) -> list[dict]:
        state = self.folder / "state"
        membership = agent_module.stored_membership(state / "agent.db")
        journal = agent_module._journal(state, membership, policy=None)
        records = [json.loads(data) for data in journal.audit.records()]
        journal.close()
        return records

    def work_until(self, condition: Callable[[], bool], *, settings=None) -> None:
        """Run the agent in this process until the coordinator has seen `condition`."""

        async def scenario() -> None:
            stop = asyncio.Event()
            work = asyncio.create_task(
                agent_module.work_until(stop, settings or self.settings, command=self.command)
            )
            seen = asyncio.create_task(
                asyncio.to_thread(self.coordinator.wait_for, lambda: work.done() or condition())
            )
            await asyncio.wait({work, seen}, return_when=asyncio.FIRST_COMPLETED)
            stop.set()
            with self.coordinator.changed:
                self.coordinator.changed.notify_all()
            await asyncio.gather(work, seen)

        asyncio.run(scenario())

    def start_process(self, *, die_after_rename: int = 0) -> subprocess.Popen:
        """Start the agent as a process of its own; see agent_process.py."""
        words = [str(self.folder / "agent.toml"), str(die_after_rename)]
        return subprocess.Popen([sys.executable, str(HERE / "agent_process.py"), *words])


@pytest.fixture
def site(tmp_path, coordinator):
    """Yield an enrolled Site whose data set `ehr` exists."""
    found = Site(tmp_path, coordinator)
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    found.write_settings()
    agent_module.enrol(coordinator.url, coordinator.invite, tmp_path / "state")
    return found
