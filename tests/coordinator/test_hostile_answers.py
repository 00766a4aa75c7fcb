"""What one hostile site can do with its answers: at most lose its own update."""

import numpy as np
import pytest

from fedward.coordinator import aggregation
from fedward.coordinator.errors import CoordinatorError
from fedward.protocol.arrays import encode
from fedward.protocol.canonical import sha256_digest
from fedward.protocol.documents import (
    AppRef,
    EvaluateRules,
    RoundRules,
    StrategySpec,
    TaskKind,
    UpdateRef,
)

from .federation import ADMIN, SITES, Federation, SimulatedSite, simulated


def begin(federation: Federation, **plan: object) -> tuple[str, dict[str, SimulatedSite]]:
    rules = {"rounds": RoundRules(count=1, attempts=2), "evaluate": EvaluateRules(every=0)}
    run = federation.prepare(**(rules | plan))
    federation.coordinator.start_run(ADMIN, run)
    return run, simulated(federation)


def test_num_examples_among_the_metrics_are_not_believed(federation: Federation) -> None:
    run, sites = begin(federation)
    for name, stated in zip(SITES, (1.7e308, 1.7e308, -5), strict=True):
        task = sites[name].peek()
        assert task is not None
        update = sites[name].train(task)
        assert sites[name].send(task, update, metrics={"num-examples": stated}).accepted
    federation.run_due()
    assert federation.coordinator.show_run(run).status == "completed"
    (attempt,) = federation.coordinator.show_round(run, 1).attempts
    assert attempt.metrics == {"num-examples": 1000}


def test_a_fault_while_combining_fails_that_run_alone(federation: Federation) -> None:
    """An integer that no float holds reaches the strategy only if a check of ours is missing."""
    run, sites = begin(federation)
    other = federation.new_run(rounds=RoundRules(count=1), seed=1)
    for name in SITES:
        assert sites[name].work()
    path = next((federation.folder / "updates").iterdir())
    broken = {"w": np.zeros((1, 3), np.float32), "b": np.zeros((), np.float32)}
    path.write_bytes(b"".join(encode(broken)))  # `seen` is missing: the gate has passed it
    federation.run_due()
    assert federation.coordinator.show_round(run, 1).attempts[0].reason is not None
    federation.coordinator.start_run(ADMIN, other)
    assert federation.finish(other, sites).status == "completed"


def test_giving_up_ends_the_attempt_and_only_one_that_is_aggregating(
    federation: Federation,
) -> None:
    run, sites = begin(federation)
    aggregation.give_up(federation.coordinator.context, run)
    assert federation.coordinator.show_run(run).phase == "train open"
    for name in SITES:
        sites[name].work()
    aggregation.give_up(federation.coordinator.context, run)
    first, second = federation.coordinator.show_round(run, 1).attempts
    assert (first.status, second.status) == ("aborted", "open")
    assert "internal-error" in (first.reason or "")


def test_a_second_result_cannot_remove_or_replace_an_accepted_update(
    federation: Federation,
) -> None:
    _, sites = begin(federation)
    site = sites[SITES[0]]
    task = site.peek()
    assert task is not None
    data = b"".join(encode(site.train(task)))
    site.upload(task, data)
    uploads = federation.blobs.uploads
    kept = uploads.finish(task.task, fence=task.fence, digest=sha256_digest(data))
    with pytest.raises(CoordinatorError, match="expected sha256:1111"):
        uploads.finish(task.task, fence=task.fence, digest="sha256:" + "1" * 64)
    assert kept.read_bytes() == data
    other = bytes(reversed(data))
    uploads.append(task.task, fence=task.fence, offset=len(data), data=other, limit_bytes=10**6)
    with pytest.raises(CoordinatorError):
        uploads.finish(task.task, fence=task.fence, digest="sha256:" + "1" * 64)
    ref = UpdateRef(digest=sha256_digest(data), size_bytes=len(data))
    assert site.submit(task, update=ref, metrics={}).accepted
    assert kept.read_bytes() == data


def test_settings_of_messages_reach_only_their_kind(federation: Federation) -> None:
    app = AppRef(recipe="tabular", train_config={"lr": 0.1}, evaluate_config={"batches": 2})
    run, sites = begin(federation, app=app, evaluate=EvaluateRules(every=1))
    assert federation.finish(run, sites).status == "completed"
    site = sites[SITES[0]]
    assert site.kinds == [TaskKind.TRAIN, TaskKind.EVALUATE]
    assert site.configs == [{"lr": 0.1, "server-round": 1}, {"batches": 2, "server-round": 1}]


def test_settings_under_names_that_fedward_fills_in_are_refused(federation: Federation) -> None:
    federation.coordinator.create_study(ADMIN, federation.study())
    strategy = StrategySpec(name="fedprox", parameters={"proximal-mu": 0.1})
    app = AppRef(
        recipe="tabular",
        train_config={"server-round": 3, "proximal-mu": 1.0, "lr": 1.0},
        evaluate_config={"prepared.mean": 1.0},
    )
    found = federation.coordinator.validate_plan(federation.plan(app=app, strategy=strategy))
    assert found.reasons == [
        "app.train_config: 'proximal-mu' is set by fedward",
        "app.train_config: 'server-round' is set by fedward",
        "app.evaluate_config: 'prepared.mean' is set by fedward",
    ]


def test_of_many_runs_the_oldest_is_worked_on_first(federation: Federation) -> None:
    first, sites = begin(federation)
    second = federation.new_run(rounds=RoundRules(count=1), seed=1)
    federation.clock.now += 1
    federation.coordinator.start_run(ADMIN, second)
    assert sites[SITES[0]].work() and sites[SITES[1]].work() and sites[SITES[2]].work()
    federation.run_due()
    assert federation.coordinator.show_run(first).status == "completed"
    assert federation.coordinator.show_run(second).phase == "train open"
