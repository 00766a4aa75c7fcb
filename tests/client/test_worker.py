"""The worker as a real process, driven over its pipes as the agent does."""

import contextlib
import hashlib
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from fedward.client.frames import read_frame, write_frame
from fedward.protocol.arrays import BFLOAT16, decode, encode

PROBE = '''
import os, random, subprocess, sys
import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict, ConfigRecord
from flwr.clientapp import ClientApp

print("imported: this is noise on stdout")
app = ClientApp()
CALLS = []


def reply(message, arrays=None, **metrics):
    records = {"m": MetricRecord(metrics)} if metrics else {}
    if arrays is not None:
        records["a"] = arrays
    return Message(RecordDict(records), reply_to=message)


@app.train()
def train(message, context):
    """A NumPy-list app that draws from every global generator."""
    import torch

    print("training: more noise")
    sys.stdout.write("x" * 100_000)
    subprocess.run([sys.executable, "-c", "print('noise of a child')"], check=True)
    arrays = message.content["arrays"].to_numpy_ndarrays()
    noise = np.random.normal() + random.random() + float(torch.rand(()))
    shift = sum(hash(s) % 97 for s in {"a", "b", "c"})
    arrays[0] += np.float32(noise + shift)
    count = context.state["c"]["n"] + 1 if "c" in context.state else 1
    context.state["c"] = ConfigRecord({"n": count})
    return reply(message, ArrayRecord(arrays), **{"num-examples": 3, "count": count})


@app.evaluate()
def evaluate(message, context):
    CALLS.append(1)
    ways = {
        "raise": lambda: 1 / 0,
        "exit": lambda: sys.exit(0),
        "interrupt": lambda: os.kill(os.getpid(), 2) or (_ for _ in ()).throw(KeyboardInterrupt),
        "memory": lambda: (_ for _ in ()).throw(MemoryError()),
        "fork": lambda: os.fork(),
        "long": lambda: None,
        "chdir": lambda: os.chdir("/"),
        "stdin": lambda: sys.stdin.read(),
        "crash": lambda: os.kill(os.getpid(), 9),
        "stay": lambda: __import__("time").sleep(600),
    }
    way = message.content["config"].get("way", "")
    if way == "where":
        return reply(message, **{"home": int(os.getcwd() == context.run_config["home"])})
    if way:
        ways[way]()
    if way == "long":
        return reply(message, long=[0.123456789012345678] * 4_000_000)
    return reply(message, calls=len(CALLS), telemetry=int(os.environ["FLWR_TELEMETRY_ENABLED"]))


@app.query("torch")
def torch_state(message, context):
    import torch

    state = message.content["arrays"].to_torch_state_dict()
    if message.content["config"]["tag"] == "bfloat16":
        assert state["w"].dtype is torch.bfloat16
    record = ArrayRecord({k: v * 2 for k, v in state.items()})
    state["w"].zero_()
    lazy = type(record["w"]).__name__
    context.state["kept"] = record
    same = all(a.data for a in record.values())
    return reply(message, lazy=int(lazy == "LazyArray"), same=int(same))
'''


class Driver:
    """Holds a worker process and the files between it and the test."""

    def __init__(self, folder, environment=None):
        self.folder = folder
        self.log = (folder / "log").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fedward.client.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            cwd=folder,
            env={**os.environ, **(environment or {})},
        )

    def ask(self, **message):
        write_frame(self.process.stdin, message)
        return read_frame(self.process.stdout)

    def load(self, app):
        return self.ask(op="load", app=str(app))

    def run(self, kind, arrays=None, **fields):
        work = {"op": "run", "kind": kind, "run_id": 1, "node_id": 2, "seed": 5, **fields}
        if arrays is not None:
            (self.folder / "model").write_bytes(b"".join(encode(arrays)))
            work["arrays_path"] = str(self.folder / "model")
            work["reply_path"] = str(self.folder / "reply")
        return self.ask(**work)

    def trained(self):
        return decode((self.folder / "reply").read_bytes())

    def digest(self):
        return hashlib.sha256((self.folder / "reply").read_bytes()).hexdigest()

    def close(self):
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        self.process.stdout.close()
        self.log.close()
        return self.process.wait(timeout=30)


@pytest.fixture
def drive(tmp_path):
    drivers = []

    def start(**environment):
        drivers.append(Driver(tmp_path, environment))
        return drivers[-1]

    yield start
    for driver in drivers:
        driver.close()


@pytest.fixture(scope="module")
def probe(tmp_path_factory):
    """Folder of an app that uses nothing of fedward."""
    folder = tmp_path_factory.mktemp("probe")
    (folder / "pyproject.toml").write_text(
        '[tool.flwr.app.components]\nclientapp = "probe:app"\n'
        '[tool.flwr.app.config]\nhome = ""\nlr = 0.5\n'
    )
    (folder / "probe.py").write_text(PROBE)
    return folder


@pytest.fixture(scope="module")
def warm(probe, tmp_path_factory):
    """One worker with the probe loaded, for tests that leave it as it was."""
    driver = Driver(tmp_path_factory.mktemp("warm"))
    assert driver.load(probe) == {"ok": True, "config": {"home": "", "lr": 0.5}}
    yield driver
    assert driver.close() == 0


MODEL = {"w": np.array([1.0, 2.0], dtype=np.float32), "n": np.array(3, dtype=np.int64)}


def test_prints_of_the_app_and_its_children_never_reach_the_frames(warm):
    answer = warm.run("train", MODEL)
    assert answer["ok"]
    assert answer["metrics"]["num-examples"] == answer["num_examples"] == 3
    assert list(warm.trained()) == ["w", "n"]
    log = (warm.folder / "log").read_text()
    for noise in ("imported:", "training:", "x" * 100_000, "noise of a child"):
        assert noise in log


def test_the_same_seed_gives_the_same_bits_warm_or_fresh(warm, probe, drive):
    digests = []
    for driver in (warm, warm, drive(PYTHONHASHSEED="0"), drive()):
        if driver is not warm:
            driver.load(probe)
        assert driver.run("train", MODEL)["ok"]
        digests.append(driver.digest())
    assert len(set(digests)) == 1
    warm.run("train", MODEL, seed=6)
    assert warm.digest() != digests[0]


def test_state_persists_through_its_file_alone(warm, tmp_path):
    paths = {"state_path_out": str(tmp_path / "state")}
    assert warm.run("train", MODEL, **paths)["metrics"]["count"] == 1
    assert warm.run("train", MODEL, **paths)["metrics"]["count"] == 1
    paths["state_path_in"] = str(tmp_path / "state")
    assert warm.run("train", MODEL, **paths)["metrics"]["count"] == 2
    assert warm.run("train", MODEL, **paths)["metrics"]["count"] == 3


def test_modules_stay_loaded_over_messages(warm):
    first = warm.run("evaluate")["metrics"]["calls"]
    assert warm.run("evaluate")["metrics"]["calls"] == first + 1
    assert warm.run("evaluate")["metrics"]["telemetry"] == 0


@pytest.mark.parametrize(
    ("way", "failure", "text"),
    [
        ("raise", "app-raised", "ZeroDivisionError: division by zero"),
        ("exit", "app-raised", "SystemExit: 0"),
        ("interrupt", "app-raised", "KeyboardInterrupt"),
        ("memory", "resources", "MemoryError"),
        ("unknown", "app-raised", "KeyError: 'unknown'"),
    ],
)
def test_whatever_the_app_raises_is_a_failure_and_the_worker_lives(
    warm, tmp_path, way, failure, text
):
    state = tmp_path / "state"
    answer = warm.run("evaluate", config={"way": way}, state_path_out=str(state))
    assert (answer["ok"], answer["failure"]) == (False, failure)
    assert answer["message"].startswith(text)
    assert not state.exists()
    assert warm.run("evaluate")["ok"]


def test_a_reply_too_long_for_a_frame_is_invalid_and_the_worker_lives(warm):
    answer = warm.run("evaluate", config={"way": "long"})
    assert (answer["ok"], answer["failure"]) == (False, "reply-invalid")
    assert "at most" in answer["message"]
    assert warm.run("evaluate")["ok"]


def test_the_app_finds_an_empty_stdin_and_the_same_folder_each_time(warm):
    assert warm.run("evaluate", config={"way": "stdin"})["ok"]
    assert warm.run("evaluate", config={"way": "chdir"})["ok"]
    answer = warm.run("evaluate", config={"way": "where"}, run_config={"home": str(warm.folder)})
    assert answer["metrics"] == {"home": 1}


def test_bad_requests_of_a_plan_or_a_model_are_named(warm, tmp_path):
    damaged = tmp_path / "damaged"
    damaged.write_bytes(b"\x08\0\0\0\0\0\0\0{broken}")
    empty = tmp_path / "empty"
    empty.write_bytes(b"")
    cases = {
        "plan-invalid": [{"run_config": {"learning-rate": 1}}],
        "model-invalid": [{"arrays_path": str(p)} for p in (damaged, empty, tmp_path / "absent")],
        "resources": [{"state_path_in": str(damaged)}],
    }
    for failure, requests in cases.items():
        for fields in requests:
            assert warm.run("evaluate", **fields)["failure"] == failure
    unregistered = warm.run("query", action="other")
    assert unregistered["failure"] == "app-raised"
    assert "No query function registered" in unregistered["message"]


def test_a_reply_that_cannot_be_written_is_a_matter_of_resources(warm):
    answer = warm.run("train", MODEL, state_path_out="/nowhere/state")
    assert answer["failure"] == "resources"


@pytest.mark.parametrize("dtype", [np.float32, np.float16, BFLOAT16])
def test_torch_tensors_go_both_ways_without_serialisation(warm, dtype):
    model = {"w": np.arange(4).astype(dtype), "e": np.zeros((0, 3), dtype), "s": np.array(1, dtype)}
    answer = warm.run("query", model, action="torch", config={"tag": np.dtype(dtype).name})
    assert answer["metrics"] == {"lazy": 1, "same": 1}, answer


def test_of_an_app_that_forked_only_the_process_that_was_asked_answers(warm, tmp_path):
    state = {"state_path_out": str(tmp_path / "state")}
    first = warm.run("evaluate", config={"way": "fork"}, number=1, **state)
    calls = first["metrics"]["calls"]
    for number in (2, 3, 4):
        answer = warm.run("evaluate", number=number)
        assert answer["number"] == number
        assert answer["metrics"]["calls"] == calls + number - 1, "the child's answer comes twice"


def test_an_app_that_forks_while_it_is_imported_is_loaded_once(drive, tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.flwr.app.components]\nclientapp = "t:app"\n')
    (tmp_path / "t.py").write_text(
        "import os\nfrom flwr.clientapp import ClientApp\napp = ClientApp()\nos.fork()\n"
    )
    driver = drive()
    assert driver.ask(op="load", app=str(tmp_path), number=1)["number"] == 1
    assert driver.ask(op="load", app=str(tmp_path), number=2)["number"] == 2


def test_a_second_app_needs_another_process(warm, tmp_path):
    answer = warm.load(tmp_path)
    assert answer["failure"] == "app-invalid"
    assert "second app" in answer["message"]
    assert warm.run("evaluate")["ok"]


def test_an_app_that_did_not_load_leaves_nothing_for_the_next(drive, probe, tmp_path):
    bad = tmp_path / "bad"
    bad.mkdir()
    (bad / "pyproject.toml").write_text('[tool.flwr.app.components]\nclientapp = "main:app"\n')
    (bad / "main.py").write_text("import probe\nraise SystemExit('no GPU')\n")
    (bad / "probe.py").write_text("app = None\n")
    driver = drive()
    pid = driver.process.pid
    answer = driver.load(bad)
    assert answer["failure"] == "app-invalid"
    assert answer["message"].startswith("SystemExit: no GPU")
    assert driver.load(probe)["ok"]
    assert driver.process.pid == pid
    assert driver.run("evaluate")["metrics"]["calls"] == 1


def test_apps_that_do_not_exist_are_refused(drive, tmp_path):
    driver = drive()
    assert driver.run("evaluate")["failure"] == "app-invalid"
    answer = driver.load("forest")
    assert "'forest', expected one of ['tabular']" in answer["message"]
    assert driver.load(tmp_path / "absent")["failure"] == "app-invalid"


def test_a_crash_ends_the_process_between_frames(drive, probe):
    driver = drive()
    driver.load(probe)
    assert driver.run("evaluate", config={"way": "crash"}) is None
    assert driver.process.wait(timeout=10) == -signal.SIGKILL


def test_a_busy_worker_ends_when_its_agent_is_gone(drive, probe):
    driver = drive()
    driver.load(probe)
    write_frame(
        driver.process.stdin,
        {
            "op": "run",
            "kind": "evaluate",
            "config": {"way": "stay"},
            "run_id": 1,
            "node_id": 2,
            "seed": 0,
        },
    )
    driver.process.stdin.close()
    assert driver.process.wait(timeout=30) == 0


def test_threads_of_torch_are_set_on_purpose(drive, tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.flwr.app.components]\nclientapp = "t:app"\n')
    (tmp_path / "t.py").write_text(
        "import torch\nfrom flwr.app import Message, MetricRecord, RecordDict\n"
        "from flwr.clientapp import ClientApp\napp = ClientApp()\n"
        "@app.evaluate()\ndef evaluate(message, context):\n"
        "    m = MetricRecord({'threads': torch.get_num_threads()})\n"
        "    return Message(RecordDict({'m': m}), reply_to=message)\n"
    )
    driver = drive(FEDWARD_TORCH_THREADS="3")
    driver.load(tmp_path)
    assert driver.run("evaluate")["metrics"] == {"threads": 3}
