"""Following a run through cut streams, and its rounds as rows."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from fedward.cli.errors import NotReachable
from fedward.cli.http import Api
from fedward.cli.watch import follow_run, round_columns, round_rows, summary_line

RUN = "run-000001"


def attempt(kind: str, status: str = "committed", **fields: Any) -> dict[str, Any]:
    empty = {"cohort": ["a", "b"], "took_part": ["a", "b"], "refused": [], "late": []}
    return {
        "kind": kind, "status": status, "metrics": {}, "bytes_up": 0, "duration_s": 1.0,
        **empty, **fields,
    }  # fmt: skip


class Coordinator:
    """A run of one round that is seen in three states; its stream is cut after each event."""

    def __init__(self, cuts: int) -> None:
        self.steps = iter(["running", "running", "completed"])
        self.cuts = cuts
        self.asked_after: list[str | None] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/events"):
            self.asked_after.append(request.headers.get("Last-Event-ID"))
            if self.cuts:
                self.cuts -= 1
                raise httpx.ReadError("cut", request=request)
            number = len(self.asked_after)
            record = json.dumps({"record": {"action": "attempt.commit"}})
            return httpx.Response(200, text=f"id: {number}\nevent: record\ndata: {record}\n\n")
        if request.url.path.endswith("/rounds"):
            view = {"round": 1, "attempts": [attempt("train")]}
            return httpx.Response(200, json={"items": [view], "next": None})
        return httpx.Response(200, json={"run": RUN, "status": next(self.steps)})


def statuses(coordinator: Coordinator) -> Iterator[str]:
    with Api("http://127.0.0.1:1", "fw_x", transport=httpx.MockTransport(coordinator)) as api:
        for snapshot in follow_run(api, RUN):
            yield snapshot.run["status"] + (" (away)" if snapshot.away else "")


def test_a_run_is_followed_to_its_end() -> None:
    coordinator = Coordinator(cuts=0)
    assert list(statuses(coordinator)) == ["running", "running", "completed"]
    assert coordinator.asked_after == [None, "1"]


def test_a_cut_stream_is_taken_up_again() -> None:
    coordinator = Coordinator(cuts=1)
    assert list(statuses(coordinator)) == ["running", "running (away)", "running", "completed"]


def test_a_coordinator_that_never_answered_is_an_error_at_once() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    with (
        Api("http://127.0.0.1:1", "fw_x", transport=httpx.MockTransport(refuse)) as api,
        pytest.raises(NotReachable),
    ):
        next(follow_run(api, RUN))


def test_a_round_shows_the_metrics_of_its_evaluation_and_who_was_missing() -> None:
    late = [{"site": "b", "reason": "deadline"}]
    train = attempt("train", took_part=["a"], late=late, bytes_up=7, metrics={"train-loss": 2.0})
    view = {"round": 1, "attempts": [train, attempt("evaluate", metrics={"loss": 0.5})]}
    (row,) = round_rows([view])
    assert (row["took_part"], row["metric:loss"], row["bytes_up"]) == ("1 of 2", 0.5, 7)
    assert (row["seconds"], row["refused"]) == (2.0, "b (deadline)")
    assert list(round_columns([view])) == [
        "round", "status", "took_part", "metric:loss", "bytes_up", "seconds", "refused",
    ]  # fmt: skip


def test_an_evaluation_that_was_aborted_gives_no_metrics() -> None:
    view = {"round": 1, "attempts": [attempt("train"), attempt("evaluate", "aborted")]}
    (row,) = round_rows([view])
    assert row["status"] == "committed"
    assert not any(key.startswith("metric:") for key in row)


def test_the_metrics_of_any_app_get_columns_the_usual_ones_first() -> None:
    metrics = {"eval.acc": 0.9, "loss": 0.1, "num-examples": 5, "per-class": [0.1, 0.2]}
    view = {"round": 1, "attempts": [attempt("train"), attempt("evaluate", metrics=metrics)]}
    columns = round_columns([view])
    assert list(columns.values())[3:5] == ["loss", "eval.acc"]
    assert [round_rows([view])[0][key] for key in list(columns)[3:5]] == [0.1, 0.9]


def test_a_run_that_waits_says_for_whom_and_why() -> None:
    run = {
        "run": RUN, "status": "running", "round": 2, "rounds": 5, "phase": "train open",
        "participation": "1 of 2 took part", "waiting_for": [{"site": "b", "why": "working"}],
    }  # fmt: skip
    assert summary_line(run) == (
        f"{RUN} running, round 2 of 5, train open, 1 of 2 took part, waiting for b (working)"
    )
