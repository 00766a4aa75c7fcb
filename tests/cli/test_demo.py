"""The demo: its last line, its folder, and that nothing of it is left running."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from fedward.cli.demo_data import write_demo_data
from fedward.cli.demo_run import HOSPITALS, run_demo
from fedward.cli.errors import CliError

PATIENCE_S = 100.0
KEYS = [
    "federated_accuracy",
    "federated_auc",
    "local_accuracy",
    "pooled_accuracy",
    "rounds",
    "sites",
    "bytes_up",
    "bytes_down",
    "audit",
    "seconds",
]


def processes_marked(mark: str) -> list[str]:
    """Return the ids of the processes whose environment holds the mark."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environment = (entry / "environ").read_bytes()
            except OSError:
                continue
            if mark.encode() in environment:
                found.append(entry.name)
    return found


@pytest.fixture
def mark() -> str:
    return f"fedward-test-{uuid.uuid4().hex}"  # noqa: TID251  one name per test run


@pytest.fixture
def demo(tmp_path: Path, mark: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "fedward.cli", "demo", "--folder", str(tmp_path / "run")]
    # The mark stands where the agents' workers inherit it, too.
    environment = {**os.environ, "FEDWARD_TORCH_MARK": mark, "PYTHONUNBUFFERED": "1"}
    # Where the tests run in the background, SIGINT is ignored, and a child would inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [*command, "--rounds", "2"], env=environment, stdout=subprocess.PIPE, text=True
    )
    signal.signal(signal.SIGINT, before)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.flow
def test_the_last_line_is_the_result_and_nothing_is_left(
    demo: subprocess.Popen[str], mark: str, tmp_path: Path
) -> None:
    out, _ = demo.communicate(timeout=PATIENCE_S)
    assert demo.returncode == 0, out
    result = json.loads(out.splitlines()[-1])
    assert list(result) == KEYS
    assert (result["rounds"], result["sites"], result["audit"]) == (2, 3, "ok")
    assert len(result["local_accuracy"]) == 3
    assert result["bytes_up"] > 0
    assert (tmp_path / "run" / "federated-model.safetensors").is_file()
    assert processes_marked(mark) == []


@pytest.mark.flow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_demo_ends_all_that_it_started(
    number: signal.Signals, demo: subprocess.Popen[str], mark: str
) -> None:
    for line in iter(demo.stdout.readline, ""):
        if line.startswith("hospital-large is enrolled"):
            break
    demo.send_signal(number)
    assert demo.wait(30) == 1
    assert processes_marked(mark) == []


def test_a_folder_that_is_not_the_demos_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(CliError, match="choose --folder"):
        run_demo(tmp_path, rounds=1, started=time.monotonic())
    assert (tmp_path / "thesis.tex").read_text() == "x"


def test_no_hospital_sees_the_whole_range_and_no_row_twice(tmp_path: Path) -> None:
    data = write_demo_data(tmp_path, HOSPITALS)
    files = [*data.sites.values(), data.held_out]
    rows = [line for file in files for line in file.read_text().splitlines()[1:]]
    assert len(rows) == len(set(rows)) == 569
    ranges = [data.sizes[name] for name in HOSPITALS]
    for smaller, larger in pairwise(ranges):
        assert smaller[1] <= larger[0]
