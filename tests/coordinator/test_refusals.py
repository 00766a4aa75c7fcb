"""Answers that are refused by name and never change the model."""

from typing import Any

import numpy as np
import pytest

from fedward.coordinator.errors import EventRefused, LimitExceeded, NotFound, OffsetMismatch
from fedward.protocol.arrays import encode
from fedward.protocol.canonical import sha256_digest
from fedward.protocol.documents import (
    NextStep,
    RoundRules,
    Task,
    TaskFailure,
    UpdateRef,
    WeightRules,
)

from .federation import ADMIN, Federation, SimulatedSite, simulated


def begin(federation: Federation, **plan: Any) -> tuple[str, dict[str, SimulatedSite]]:
    plan.setdefault("rounds", RoundRules(count=1, quorum=2, attempts=1))
    run = federation.prepare(**plan)
    federation.coordinator.start_run(ADMIN, run)
    return run, simulated(federation)


def fetch(site: SimulatedSite) -> Task:
    task = site.peek()
    assert task is not None
    site.held = None
    return task


def refused(federation: Federation, run: str) -> list[tuple[str, str]]:
    attempt = federation.coordinator.show_round(run, 1).attempts[0]
    return [(entry.site, entry.reason) for entry in attempt.refused]


BAD_ARRAYS = {
    "non-finite": {"w": np.array([[1, np.nan, 3]], np.float32)},
    "schema-mismatch": {"w": np.array([[1.0]], np.float32)},
}


@pytest.mark.parametrize("reason", BAD_ARRAYS)
def test_bad_arrays_are_refused_and_the_others_go_on(federation: Federation, reason: str) -> None:
    run, sites = begin(federation)
    bad = sites["hospital-a"]
    task = fetch(bad)
    receipt = bad.send(task, bad.train(task) | BAD_ARRAYS[reason])
    assert (receipt.accepted, receipt.reason, receipt.next) == (False, reason, NextStep.POLL)
    assert receipt.detail is not None
    assert "'w'" in receipt.detail
    done = federation.finish(run, sites)
    assert done.status == "completed"
    assert refused(federation, run) == [("hospital-a", reason)]
    trained = federation.coordinator.show_round(run, 1).attempts[0]
    assert trained.participation == "2 of 3 took part"


def test_a_float64_update_is_refused_by_its_dtype(federation: Federation) -> None:
    _, sites = begin(federation)
    site = sites["hospital-a"]
    task = fetch(site)
    receipt = site.send(task, site.train(task) | {"w": np.full((1, 3), 1e300)})
    assert receipt.detail == "array 'w': got float64 (1, 3), expected float32 (1, 3)"


@pytest.mark.parametrize(
    ("examples", "reason"),
    [(1e18, "weight-over-cap"), (-1.0, "weight-invalid"), (None, "weight-missing")],
)
def test_a_weight_that_is_not_believed_is_refused(
    federation: Federation, examples: float | None, reason: str
) -> None:
    run, sites = begin(federation)
    site = sites["hospital-b"]
    task = fetch(site)
    receipt = site.send(task, site.train(task), num_examples=examples)
    assert (receipt.accepted, receipt.reason) == (False, reason)
    assert federation.finish(run, sites).status == "completed"
    assert refused(federation, run) == [("hospital-b", reason)]


def test_a_missing_weight_takes_the_plans_fallback_and_shows_it(federation: Federation) -> None:
    run, sites = begin(federation, weights=WeightRules(missing=50.0))
    sites["hospital-a"].examples = None
    assert federation.finish(run, sites).status == "completed"
    tasks = federation.coordinator.show_round(run, 1).attempts[0].tasks
    assert [(t.num_examples, t.weight) for t in tasks] == [(None, 50), (200, 200), (700, 700)]


def test_a_refusal_that_breaks_the_quorum_fails_the_round(federation: Federation) -> None:
    run, sites = begin(federation, rounds=RoundRules(count=1, quorum=3, attempts=1))
    site = sites["hospital-a"]
    task = fetch(site)
    site.submit(task, failure=TaskFailure.APP_RAISED, num_examples=None)
    shown = federation.coordinator.show_run(run)
    assert shown.status == "failed"
    assert shown.reason is not None
    assert "quorum-missed: 0 of 3 took part, 3 are needed" in shown.reason
    assert shown.model == federation.coordinator.show_plan(shown.plan).plan.model


def test_a_stale_fence_is_refused_everywhere(federation: Federation) -> None:
    _, sites = begin(federation)
    site = sites["hospital-a"]
    old, new = fetch(site), fetch(site)
    assert (old.task, old.fence, new.fence) == (new.task, 1, 2)
    assert site.submit(old, failure=TaskFailure.APP_RAISED).reason == "stale-fence"
    service = federation.coordinator
    with pytest.raises(EventRefused, match="got fence 1, expected 2"):
        service.note_progress(site.name, old.task, fence=1)
    with pytest.raises(EventRefused, match="got fence 1, expected 2"):
        service.append_chunk(site.name, old.task, fence=1, offset=0, data=b"x")
    assert site.answer(new).accepted


def test_the_same_answer_again_gets_the_same_receipt_and_counts_once(
    federation: Federation,
) -> None:
    run, sites = begin(federation)
    site = sites["hospital-a"]
    task = fetch(site)
    update = site.train(task)
    first = site.send(task, update)
    data = b"".join(encode(update))
    ref = UpdateRef(digest=sha256_digest(data), size_bytes=len(data))
    again = site.submit(task, update=ref, metrics={"loss": site.target})
    assert (first, first.accepted) == (again, True)
    other = site.submit(task, update=ref, metrics={"loss": 0.0})
    assert (other.accepted, other.reason) == (False, "duplicate")
    assert federation.coordinator.show_run(run).took_part == 1


def test_an_answer_to_an_earlier_round_is_refused_by_name(federation: Federation) -> None:
    run, sites = begin(federation, rounds=RoundRules(count=2, quorum=2, grace_s=5))
    late = sites["hospital-c"]
    task = fetch(late)
    update = late.train(task)
    for name in ("hospital-a", "hospital-b"):
        sites[name].work()
    federation.clock.now += 6
    federation.run_due()
    data = b"".join(encode(update))
    ref = UpdateRef(digest=sha256_digest(data), size_bytes=len(data))
    receipt = late.submit(task, update=ref, metrics={})
    assert (receipt.accepted, receipt.reason, receipt.next) == (
        False,
        "round-closed",
        NextStep.POLL,
    )
    assert federation.finish(run, sites).status == "completed"


def test_another_model_is_refused(federation: Federation) -> None:
    _, sites = begin(federation)
    site = sites["hospital-a"]
    task = fetch(site)
    receipt = site.send(task, site.train(task), model="sha256:" + "0" * 64)
    assert receipt.reason == "model-mismatch"


def test_another_sites_task_does_not_exist_for_this_site(federation: Federation) -> None:
    _, sites = begin(federation)
    task = fetch(sites["hospital-a"])
    with pytest.raises(NotFound):
        sites["hospital-b"].submit(task, failure=TaskFailure.APP_RAISED)
    with pytest.raises(NotFound):
        federation.coordinator.upload_state("hospital-b", task.task, fence=1)


def test_an_incomplete_upload_is_to_be_continued(federation: Federation) -> None:
    _, sites = begin(federation)
    site = sites["hospital-a"]
    task = fetch(site)
    data = b"".join(encode(site.train(task)))
    site.upload(task, data[:50])
    ref = UpdateRef(digest=sha256_digest(data), size_bytes=len(data))
    receipt = site.submit(task, update=ref, metrics={})
    assert (receipt.reason, receipt.next) == ("upload-incomplete", NextStep.UPLOAD)
    with pytest.raises(OffsetMismatch) as caught:
        federation.coordinator.append_chunk(site.name, task.task, fence=1, offset=0, data=b"x")
    assert caught.value.received_bytes == 50
    site.upload(task, data)
    assert site.submit(task, update=ref, metrics={}).accepted


def test_a_damaged_upload_begins_anew(federation: Federation) -> None:
    _, sites = begin(federation)
    site = sites["hospital-a"]
    task = fetch(site)
    data = b"".join(encode(site.train(task)))
    site.upload(task, b"x" * len(data))
    ref = UpdateRef(digest=sha256_digest(data), size_bytes=len(data))
    receipt = site.submit(task, update=ref, metrics={})
    assert (receipt.reason, receipt.next) == ("upload-damaged", NextStep.UPLOAD)
    site.upload(task, data)
    assert site.submit(task, update=ref, metrics={}).accepted


def test_an_upload_larger_than_any_update_is_refused(federation: Federation) -> None:
    _, sites = begin(federation)
    site = sites["hospital-a"]
    task = fetch(site)
    with pytest.raises(LimitExceeded, match="expected at most"):
        federation.coordinator.append_chunk(
            site.name, task.task, fence=1, offset=0, data=bytes(2 * 1024**2)
        )


def test_refusals_of_late_answers_are_counted_on_record(federation: Federation) -> None:
    run, sites = begin(federation)
    site = sites["hospital-a"]
    old = fetch(site)
    fetch(site)
    for _ in range(3):
        site.submit(old, failure=TaskFailure.APP_RAISED)
    federation.clock.now += 61
    federation.run_due()
    events = federation.coordinator.run_events(run, limit=500)
    denied = [e.record for e in events if e.record["outcome"] == "denied"]
    assert [r["reason"] for r in denied] == ["stale-fence", "stale-fence"]
    assert [r["d"]["repeats"] for r in denied] == [0, 2]  # type: ignore[index]  # JSON
