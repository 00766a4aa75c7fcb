"""The example app under Flower's own simulation, so that it stays an ordinary Flower app."""

import ast
import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "flower-digits"

SCRIPT = """
import ray
from flwr.simulation import run_simulation
from flower_digits.client_app import app as client_app
from flower_digits.server_app import app as server_app

if __name__ == "__main__":
    run_simulation(
        server_app=server_app,
        client_app=client_app,
        num_supernodes=3,
        backend_config={
            "init_args": {"num_cpus": 2, "include_dashboard": False},
            "client_resources": {"num_cpus": 1, "num_gpus": 0},
        },
    )
    ray.shutdown()
"""


def processes_of(session):
    """Return ids and command lines of the processes in a session."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
        except (OSError, ValueError):
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found[int(folder.name)] = command
    return found


def has_ended(pid, *, limit_s):
    """Wait for a process that is no child of ours; kill it if it stays."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        if select.select([handle], [], [], limit_s)[0]:
            return True
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        return False
    finally:
        os.close(handle)


def test_the_example_imports_nothing_of_fedward():
    for path in EXAMPLE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in getattr(node, "names", [])]
            names.append(getattr(node, "module", None) or "")
            assert not any(name.split(".")[0] == "fedward" for name in names), path


@pytest.mark.flow
@pytest.mark.timeout(300)
def test_the_example_runs_under_flowers_own_simulation(tmp_path):
    script = tmp_path / "simulate.py"
    script.write_text(SCRIPT)
    environment = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    process = subprocess.Popen(
        [sys.executable, str(script)],
        env={**os.environ, **environment, "PYTHONPATH": str(EXAMPLE)},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    output, _ = process.communicate(timeout=280)
    assert process.returncode == 0, output[-3000:]
    scores = [float(s) for s in re.findall(r"round \d+: eval_acc=([0-9.]+)", output)]
    assert len(scores) == 3
    assert scores[-1] > 0.85
    # Ray's actors notice a moment later that their node is gone.
    stayed = [c for pid, c in processes_of(process.pid).items() if not has_ended(pid, limit_s=30)]
    assert stayed == []
