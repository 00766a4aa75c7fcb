"""A run's rounds in a pipe: one line each, when it is finished."""

import re
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


def test_the_columns_of_a_pipe_stay_where_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    rounds = [view(0), view(1, loss=0.5), view(2), view(3, loss=0.2, accuracy=0.9)]
    watch_run([Snapshot({**RUN, "status": "failed"}, rounds)], as_json=False)
    lines = capsys.readouterr().out.splitlines()
    head = "status committed  took part 1 of 1  up 0 B"
    assert lines == [
        "round 0  status query committed  took part 1 of 1  up 0 B  seconds 1  not taken -",
        f"round 1  {head}  seconds 2  not taken -  loss 0.5",
        f"round 2  {head}  seconds 1  not taken -  loss -",
        f"round 3  {head}  seconds 2  not taken -  loss 0.2",
    ]


def test_a_pipe_is_told_once_that_the_coordinator_is_away(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seen = Snapshot({**RUN, "status": "running"}, [view(0)])
    away = Snapshot(seen.run, seen.rounds, away="no answer")
    watch_run([seen, away, away, seen], as_json=False)
    assert capsys.readouterr().err.splitlines() == [
        "the coordinator is away, trying again (no answer)"
    ]


@pytest.mark.parametrize(("status", "height"), [("running", 24), ("running", 10), ("failed", 24)])
def test_the_newest_rounds_and_the_summary_fit_any_screen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, status: str, height: int
) -> None:
    size = {"FORCE_COLOR": "1", "COLUMNS": "80", "LINES": str(height), "NO_COLOR": "1"}
    for name, value in size.items():
        monkeypatch.setenv(name, value)
    run = {**RUN, "status": status, "waiting_for": [{"site": "s" * 60, "why": "w" * 60}]}
    late = [{"site": "b" * 60, "reason": "deadline"}]
    rounds = [view(number, loss=0.1) for number in range(100)]
    rounds[98]["attempts"][0]["late"] = late
    watch_run([Snapshot(run, rounds)], as_json=False)
    # Drawn twice: what follows the last move of the cursor is what stays.
    drawn = capsys.readouterr().out.rpartition("\x1b[1A\x1b[2K")[2]
    lines = [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", line).strip() for line in drawn.splitlines()]
    assert len([line for line in lines if line]) < height
    assert any(line.startswith("99 ") for line in lines)
    assert any(line.startswith("98 ") for line in lines)
    assert any("run-000001 running" in line for line in lines) == (status == "running")


def test_scripts_get_one_line_of_json_for_each_change(capsys: pytest.CaptureFixture[str]) -> None:
    run = {**RUN, "status": "completed"}
    watch_run([Snapshot(run, []), Snapshot(run, [])], as_json=True)
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_a_run_of_which_nothing_is_seen_is_an_error() -> None:
    with pytest.raises(CliError):
        watch_run([], as_json=False)
