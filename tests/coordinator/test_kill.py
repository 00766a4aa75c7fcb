"""SIGKILL at random moments: the run goes on from the last commit, to the same bits."""

import subprocess
import sys
from pathlib import Path
from random import Random  # noqa: TID251 (when to kill: seeded, no secret)

import pytest

from fedward.protocol.documents import RoundRules

from .federation import ADMIN, Federation, simulated

SCRIPT = Path(__file__).parent / "killed_process.py"


@pytest.mark.timeout(300)
def test_a_run_that_is_killed_again_and_again_ends_with_the_same_bits(tmp_path: Path) -> None:
    rules = RoundRules(count=4, quorum=2)
    models, runs = [], []
    for name in ("undisturbed", "killed"):
        (tmp_path / name).mkdir()
        federation = Federation(tmp_path / name)
        runs.append(federation.prepare(rounds=rules))
        federation.coordinator.start_run(ADMIN, runs[-1])
        if name == "undisturbed":
            models.append(federation.finish(runs[-1], simulated(federation)).model)
        federation.close()
    moments, kills = Random(7), 0
    while True:
        done = work_on(tmp_path / "killed", runs[1], for_s=moments.uniform(0.0, 1.0 + 0.3 * kills))
        if done is not None:
            break
        kills += 1
    assert kills > 0
    assert done == ["completed", models[0]]
    federation = Federation(tmp_path / "killed", salt="afterwards")
    assert federation.coordinator.verify_audit().ok
    rounds = federation.coordinator.list_rounds(runs[1]).items
    assert [[a.status for a in r.attempts] for r in rounds] == [["committed"] * 2] * 4
    federation.close()


def work_on(folder: Path, run: str, *, for_s: float) -> list[str] | None:
    """Start a process on the folder and kill it; returns its last words if it ended before."""
    command = [sys.executable, str(SCRIPT), str(folder), run]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        try:
            process.wait(for_s)
        except subprocess.TimeoutExpired:
            process.kill()
            return None
        assert process.returncode == 0
        return process.stdout.read().split()
