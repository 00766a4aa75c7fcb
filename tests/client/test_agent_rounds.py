"""What a task comes to when nothing, or only the app, goes wrong."""

import json

import numpy as np
import pytest

from fedward.client import agent

W = np.arange(3, dtype=np.float32)


def offer(coordinator, **config) -> str:
    model = coordinator.add_model(w=W, n=np.array(5, np.int64))
    return coordinator.offer(coordinator.add_plan(model), model, **config)


def test_an_update_is_the_difference_for_floats_and_the_value_for_counters(coordinator, site):
    task = offer(coordinator)
    site.work_until(lambda: task in coordinator.receipts)
    update = coordinator.update_of(task)
    np.testing.assert_array_equal(update["w"], np.ones(3, np.float32))
    assert update["n"] == 6
    assert update["n"].dtype == np.int64
    result = coordinator.results[task]
    assert result["num_examples"] == 10
    assert result["metrics"]["sum"] == 6.0
    assert result["failure"] is None


def test_an_evaluation_sends_metrics_and_no_arrays(coordinator, site):
    task = offer(coordinator, kind="evaluate")
    site.work_until(lambda: task in coordinator.receipts)
    assert coordinator.results[task]["update"] is None
    assert coordinator.uploads == {}


def test_a_missing_weight_is_sent_as_none(coordinator, site):
    task = offer(coordinator, do="no-weight")
    site.work_until(lambda: task in coordinator.receipts)
    assert coordinator.results[task]["num_examples"] is None


def test_the_apps_state_and_worker_live_on_over_rounds(coordinator, site):
    tasks = [offer(coordinator, number=n) for n in (1, 2, 3)]
    site.work_until(lambda: tasks[2] in coordinator.receipts)
    assert [coordinator.results[t]["metrics"]["seen"] for t in tasks] == [1, 2, 3]
    assert len({line.split()[0] for line in site.trainings}) == 1, "one warm process"


def test_local_arrays_stay_here_and_are_put_back(coordinator, site):
    model = coordinator.add_model(w=W, mean=np.zeros(2, np.float32))
    plan = coordinator.add_plan(model, arrays={"local": ["mean"]})
    tasks = [coordinator.offer(plan, model, number=n) for n in (1, 2)]
    tasks.append(coordinator.offer(plan, model, number=3, kind="evaluate"))
    site.work_until(lambda: coordinator.settled(tasks[2]))
    assert list(coordinator.update_of(tasks[1])) == ["w"]
    kept = site.folder / "state" / "kept"
    stored = [p.read_bytes() for p in kept.glob("??/*") if b"mean" in p.read_bytes()]
    assert len(stored) == 1
    assert np.frombuffer(stored[0][-8:], np.float32).tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    ("do", "failure"),
    [
        ("nan", "non-finite"),
        ("nan-metric", "non-finite"),
        ("shape", "schema-mismatch"),
        ("raise", "app-raised"),
        ("die", "worker-died"),
    ],
)
def test_what_the_app_does_wrong_is_a_typed_failure_and_nothing_is_uploaded(
    coordinator, site, do, failure
):
    bad, good = offer(coordinator, do=do), offer(coordinator, number=2)
    site.work_until(lambda: good in coordinator.receipts)
    assert coordinator.results[bad]["failure"] == failure
    assert coordinator.results[bad]["metrics"] is None
    assert bad not in {task for task, _ in coordinator.uploads}
    assert coordinator.results[good]["metrics"]["seen"] == 1, "the failed task left no state"


def test_a_difference_that_overflows_is_not_sent(coordinator, site):
    model = coordinator.add_model(w=np.full(3, -1e38, np.float32) * 3)
    task = coordinator.offer(coordinator.add_plan(model), model, do="overflow")
    site.work_until(lambda: task in coordinator.receipts)
    assert coordinator.results[task]["failure"] == "non-finite"


def test_a_worker_that_dies_once_is_replaced_and_the_task_done(coordinator, site):
    task = offer(coordinator, do="die-once")
    site.work_until(lambda: task in coordinator.receipts)
    assert coordinator.results[task]["failure"] is None
    assert len({line.split()[0] for line in site.trainings}) == 2


def test_a_message_that_takes_longer_than_the_limit_is_ended(coordinator, site):
    task = offer(coordinator, do="hang")
    limits = site.settings.limits.model_copy(update={"task_s": 0.5})
    settings = site.settings.model_copy(update={"limits": limits})
    site.work_until(lambda: task in coordinator.receipts, settings=settings)
    assert coordinator.results[task]["failure"] == "resources"


def test_work_on_a_closed_round_is_stopped_and_the_next_task_done(coordinator, site):
    lost = offer(coordinator, do="hang")

    def close_when_training() -> bool:
        if site.trainings and lost not in coordinator.closed:
            coordinator.closed.add(lost)
            offer(coordinator, number=2)
        return "task-00000002" in coordinator.receipts

    site.work_until(close_when_training)
    assert lost not in coordinator.results
    assert "task.abandon" in [record["action"] for record in site.records()]


def test_every_step_is_in_the_sites_own_audit_log(coordinator, site):
    task = offer(coordinator)
    site.work_until(lambda: coordinator.settled(task))
    records = site.records()
    assert [record["action"] for record in records] == [
        "agent.enrol", "agent.start", "task.receive", "plan.accept", "task.finish",
        "egress.begin", "egress.begin", "egress.end", "agent.stop",
    ]  # fmt: skip
    assert [record["seq"] for record in records] == list(range(1, 10))
    update = coordinator.results[task]["update"]
    assert records[5]["d"] == {"kind": "update"} | update
    assert str(site.folder) not in json.dumps(records), "no paths"
    assert agent.status(site.folder / "state").audit.size == 9
