"""Real agents and the real coordinator, each a process of its own, over sockets on loopback."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import numpy as np
import pytest

from fedward.client import agent
from fedward.client.recipes.registry import recipe
from fedward.protocol.arrays import decode, encode

pytestmark = pytest.mark.flow
HERE = Path(__file__).parent
SERVE = (
    "import sys; from pathlib import Path; from fedward.coordinator.server import serve;"
    "from fedward.coordinator.settings import Settings;"
    "serve(Settings(data=Path(sys.argv[1]), port=int(sys.argv[2]), poll_recheck_s=0.2))"
)
RUN = (
    "import sys; from pathlib import Path; from fedward.client.agent import run;"
    "from fedward.client.settings import load_settings; run(load_settings(Path(sys.argv[1])))"
)
SITES = ("north", "south")
WATCH = """
import sys
def note(event, arguments):
    if event in {{"socket.connect", "socket.sendto", "socket.getaddrinfo"}}:
        tell(arguments[:2] if event == "socket.getaddrinfo" else arguments[1])
def tell(address):
    with open({log!r}, "a") as file:
        print(sys.orig_argv[-1], address, file=file, sep="|")
tell("started")
sys.addaudithook(note)
"""
"""Runs in the agent and in its worker, before anything else."""


class Federation:
    """A coordinator with two enrolled sites; `start_agent` and `start_coordinator` run them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port, self.processes = folder, 0, []
        shown = self.start_coordinator()
        token = re.search(r"(fw_\S+)", shown)[1]
        self.http = httpx.Client(
            base_url=f"http://127.0.0.1:{self.port}/api/v1", timeout=30,
            headers={"Authorization": f"Bearer {token}"},
        )  # fmt: skip
        for name in SITES:
            invite = self.post("/sites/invite", {"site": name, "organisation": name})["invite"]
            self.write_site(name)
            agent.enrol(f"http://127.0.0.1:{self.port}", invite, folder / name / "state")

    def write_site(self, name: str) -> None:
        place = self.folder / name
        place.mkdir()
        rng = np.random.default_rng(len(name) + ord(name[0]))
        rows = rng.normal(size=(60, 2)).round(3)
        lines = [f"{a},{b},{int(a + b > 0)}" for a, b in rows]
        (place / "rows.csv").write_text("\n".join(["a,b,y", *lines]))
        (place / "agent.toml").write_text(
            f'coordinator = "http://127.0.0.1:{self.port}"\nsite = "{name}"\nstate = "state"\n'
            '[datasets.ehr]\npath = "rows.csv"\n'
            f'[datasets.ehr.node_config]\nlog = "{place / "trainings.log"}"\n'
        )

    def start(self, *words: str, **options) -> subprocess.Popen:
        process = subprocess.Popen([sys.executable, *words], **options)
        self.processes.append(process)
        return process

    def start_coordinator(self) -> str:
        words = ("-c", SERVE, str(self.folder / "data"), str(self.port))
        self.coordinator = self.start(*words, stdout=subprocess.PIPE, text=True)
        shown = ""
        while "listening" not in shown:
            line = self.coordinator.stdout.readline()
            assert line, "the coordinator did not start"
            shown += line
        self.port = int(re.search(r"listening on \S+:(\d+)", shown)[1])
        return shown

    def start_agent(self, name: str, *, real_worker: bool = False) -> subprocess.Popen:
        settings = str(self.folder / name / "agent.toml")
        if real_worker:
            path = os.pathsep.join([str(self.watch), *os.environ.get("PYTHONPATH", "").split(":")])
            return self.start("-c", RUN, settings, env=os.environ | {"PYTHONPATH": path})
        return self.start(str(HERE / "agent_process.py"), settings, "0")

    def post(self, path: str, document: dict) -> dict:
        return self.checked(self.http.post(path, json=document))

    def get(self, path: str) -> dict:
        return self.checked(self.http.get(path))

    def checked(self, answer: httpx.Response) -> dict:
        assert answer.is_success, answer.text
        return answer.json()

    def start_run(self, arrays, *, count: int, config: dict, prepare=None) -> str:
        self.post("/studies", {
            "study": "s1", "purpose": "test", "legal_basis": "none", "sites": list(SITES),
            "expires": "2099-01-01T00:00:00.000000Z",
        })  # fmt: skip
        model = self.checked(self.http.post("/models", content=b"".join(encode(arrays))))
        plan = self.post("/plans", {
            "name": "p", "study": "s1", "app": {"recipe": "tabular", "config": config},
            "model": model["digest"], "dataset": "ehr", "prepare": prepare,
            "rounds": {"count": count, "quorum": 2, "deadline_s": 30},
        })  # fmt: skip
        run = self.post("/runs", {"plan": plan["digest"]})["run"]
        self.post(f"/runs/{run}/start", {})
        return run

    def wait_for(self, run: str, condition) -> dict:
        """Ask until the run fits; asking is the only way to know, so this one waits."""
        for _ in range(1200):
            shown = self.get(f"/runs/{run}")
            if condition(shown):
                return shown
            time.sleep(0.05)
        raise TimeoutError(f"run {run}: {shown}")

    def model(self, run: str) -> dict[str, np.ndarray]:
        role = {"name": "r", "role": "researcher", "ttl_s": 600}
        secret = self.post("/tokens", role)["secret"]
        answer = self.http.get(
            f"/models/{self.get(f'/runs/{run}')['model']}/content",
            headers={"Authorization": f"Bearer {secret}"},
        )
        assert answer.is_success, answer.text
        return decode(answer.content)

    @property
    def watch(self) -> Path:
        """Make the folder of the sitecustomize.py that notes every connection."""
        place = self.folder / "watch"
        place.mkdir(exist_ok=True)
        log = str(self.folder / "connections")
        (place / "sitecustomize.py").write_text(WATCH.format(log=log))
        return place

    def end(self) -> None:
        self.http.close()
        for process in self.processes:
            process.kill()
            process.communicate()


@pytest.fixture
def federation(tmp_path):
    made = Federation(tmp_path)
    yield made
    made.end()


def trainings(federation, name: str) -> list[str]:
    return (federation.folder / name / "trainings.log").read_text().splitlines()


def test_two_agents_finish_a_run_although_everyone_is_killed_in_between(federation):
    arrays = {"w": np.zeros(3, np.float32), "n": np.array(7, np.int64)}
    run = federation.start_run(arrays, count=6, config={})
    agents = [federation.start_agent(name) for name in SITES]
    federation.wait_for(run, lambda shown: shown["round"] >= 2)
    agents[0].send_signal(signal.SIGKILL)
    federation.coordinator.send_signal(signal.SIGKILL)
    federation.coordinator.wait(30)
    federation.start_coordinator()
    federation.start_agent(SITES[0])
    federation.wait_for(run, lambda shown: shown["status"] == "completed")
    model = federation.model(run)
    np.testing.assert_array_equal(model["w"], np.full(3, 6, np.float32))
    assert model["n"] == 13
    for name in SITES:
        assert agent.status(federation.folder / name / "state").audit.size > 40
    assert len([t for t in trainings(federation, "south") if "train" in t]) == 6, "none repeated"


def test_the_recipe_runs_in_the_real_worker_and_connects_nowhere_else(federation):
    config = {"target": "y", "features": "a,b", "epochs": 5, "batch-size": 10}
    arrays = recipe("tabular").initial_arrays(config, 0)
    run = federation.start_run(arrays, count=1, config=config, prepare="statistics")
    agents = [federation.start_agent(name, real_worker=True) for name in SITES]
    shown = federation.wait_for(run, lambda shown: shown["status"] in {"completed", "failed"})
    assert shown["status"] == "completed", shown
    before = arrays[next(iter(arrays))]
    assert not np.array_equal(federation.model(run)[next(iter(arrays))], before)
    for process in agents:
        process.terminate()
        assert process.wait(30) == 0
    seen = set((federation.folder / "connections").read_text().splitlines())
    assert "fedward.client.worker|started" in seen, "the worker is watched, too"
    allowed = {"started", f"('127.0.0.1', {federation.port})", f"(b'127.0.0.1', {federation.port})"}
    assert {line.partition("|")[2] for line in seen} <= allowed
    assert {line for line in seen if line.startswith("fedward.client.worker|")} == {
        "fedward.client.worker|started"
    }
