"""A run's rounds in a pipe: one line each, when it is finished."""

from typing import Any

import pytest

from fedward.cli.errors import CliError
from fedward.cli.live import watch_run
from fedward.cli.watch import Snapshot

RUN = {"run": "run-000001", "round": 2, "rounds": 2}


def view(number: int, **metrics: float) -> dict[str, Any]:
    attempt = {
        "kind": "train" if number else "query", "status": "committed", "cohort": ["a"],
        "took_part": ["a"], "refused": [], "late": [], "metrics": {}, "bytes_up": 0,
        "duration_s": 1.0,
    }  # fmt: skip
    evaluation = {**attempt, "kind": "evaluate", "metrics": metrics}
    return {"round": number, "attempts": [attempt, evaluation] if metrics else [attempt]}


def test_each_round_is_printed_once_when_the_next_one_begins(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rounds = [view(0), view(1, loss=0.5), view(2, loss=0.25)]
    running = {**RUN, "status": "running"}
    ended = {**RUN, "status": "completed"}
    snapshots = [Snapshot(running, rounds[:2]), Snapshot(running, rounds), Snapshot(ended, rounds)]
    assert watch_run(snapshots, as_json=False) == ended
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines] == [
        "round 0", "round 1", "round 2", "run-000001 completed, round 2 of 2",
    ]  # fmt: skip
    assert "loss 0.25" in lines[2]


def test_scripts_get_one_line_of_json_for_each_change(capsys: pytest.CaptureFixture[str]) -> None:
    run = {**RUN, "status": "completed"}
    watch_run([Snapshot(run, []), Snapshot(run, [])], as_json=True)
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_a_run_of_which_nothing_is_seen_is_an_error() -> None:
    with pytest.raises(CliError):
        watch_run([], as_json=False)
