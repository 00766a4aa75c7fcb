"""What goes wrong on the way never loses, doubles or corrupts anything."""

import numpy as np
import pytest

from fedward.client import clock
from fedward.client.errors import AgentOutdated, NotAdmitted

BIG = np.arange(2_400_000, dtype=np.float32)
"""9.6 MB: three chunks."""


def offer(coordinator, values=BIG, **config) -> str:
    model = coordinator.add_model(w=values)
    return coordinator.offer(coordinator.add_plan(model), model, **config)


def fault(coordinator, kind, method, path, **more):
    conftest_fault = type(coordinator).Fault
    coordinator.faults.append(conftest_fault(kind, method, f"/agent/v1/{path}", **more))


def check_done_once(coordinator, site, task):
    site.work_until(lambda: coordinator.settled(task))
    assert coordinator.faults == [], "every fault was met"
    assert len(site.trainings) == 1
    np.testing.assert_array_equal(coordinator.update_of(task)["w"], np.ones_like(BIG))


CALLS = [
    ("GET", "next"),
    ("GET", "blobs/"),
    ("HEAD", "uploads/"),
    ("PUT", "uploads/"),
    ("POST", "tasks/task-00000001/result"),
]


@pytest.mark.parametrize("kind", ["cut-answer", "lost-answer", "gateway", "wrong-key", "unsigned"])
def test_whatever_call_is_not_answered_is_made_again(coordinator, site, kind):
    task = offer(coordinator)
    for method, path in CALLS:
        if (kind, method) != ("cut-answer", "HEAD"):  # it has no body to cut
            fault(coordinator, kind, method, path)
    check_done_once(coordinator, site, task)


def test_a_download_goes_on_where_it_was_cut(coordinator, site):
    task = offer(coordinator)
    model = coordinator.tasks[0]["model"]
    fault(coordinator, "cut-answer", "GET", f"blobs/{model}")
    fault(coordinator, "cut-answer", "GET", f"blobs/{model}")
    check_done_once(coordinator, site, task)
    assert coordinator.bytes_sent[model] == len(coordinator.blobs[model])


def test_an_upload_that_is_cut_in_the_middle_goes_on_at_the_right_byte(coordinator, site):
    task = offer(coordinator)
    fault(coordinator, "cut-request", "PUT", "uploads/")
    fault(coordinator, "lost-answer", "PUT", "uploads/")
    check_done_once(coordinator, site, task)
    taken = [path for method, path in coordinator.requests if method == "PUT"]
    assert len(taken) == 4, "three chunks, and the repeat of the one whose answer was lost"


def test_an_update_of_one_chunk_is_sent_without_asking_first(coordinator, site):
    task = offer(coordinator, np.zeros(3, np.float32))
    site.work_until(lambda: coordinator.settled(task))
    uploads = [method for method, path in coordinator.requests if "uploads/" in path]
    assert uploads == ["PUT"]
    np.testing.assert_array_equal(coordinator.update_of(task)["w"], np.ones(3, np.float32))


def test_a_chunk_that_had_arrived_before_is_not_taken_twice(coordinator, site):
    task = offer(coordinator, np.zeros(3, np.float32))
    fault(coordinator, "lost-answer", "PUT", "uploads/")
    site.work_until(lambda: coordinator.settled(task))
    uploads = [method for method, path in coordinator.requests if "uploads/" in path]
    assert uploads == ["PUT", "PUT"], "the refusal of the second names where to go on"
    np.testing.assert_array_equal(coordinator.update_of(task)["w"], np.ones(3, np.float32))


def test_a_result_that_was_committed_before_a_504_is_answered_as_before(coordinator, site):
    task = offer(coordinator)
    fault(coordinator, "gateway", "POST", f"tasks/{task}/result")
    check_done_once(coordinator, site, task)


def test_an_older_answer_is_not_taken_for_the_answer_to_a_new_call(coordinator, site):
    first = offer(coordinator, np.ones(2, np.float32))
    second = offer(coordinator, np.ones(2, np.float32), number=2)
    fault(coordinator, "replay-later", "GET", "next")
    site.work_until(lambda: coordinator.settled(second))
    assert [line.split()[1] for line in site.trainings] == ["train", "train"]
    assert set(coordinator.receipts) == {first, second}


def test_missing_bytes_are_sent_when_the_coordinator_asks_for_them(coordinator, site):
    task = offer(coordinator)
    fault(coordinator, "status", "HEAD", "uploads/", status=409, name="http-409")
    check_done_once(coordinator, site, task)


def test_a_lease_that_ended_is_taken_anew_without_training_again(coordinator, site):
    task = offer(coordinator)
    coordinator.refuse_results = ["stale-fence"]
    check_done_once(coordinator, site, task)
    assert coordinator.results[task]["fence"] == 2


def test_a_late_update_is_refused_and_the_agent_goes_on(coordinator, site):
    late = offer(coordinator)
    coordinator.refuse_results = ["round-closed"]
    coordinator.on_refusal = lambda: coordinator.closed.add(late)
    good = offer(coordinator, number=2)
    site.work_until(lambda: coordinator.settled(good))
    assert late not in coordinator.updates
    assert [r["reason"] for r in site.records() if r["outcome"] == "denied"] == ["round-closed"]


def test_bytes_that_do_not_fit_the_digest_never_reach_the_app(coordinator, site):
    model = coordinator.add_model(w=BIG[:3])
    coordinator.blobs[model] = coordinator.blobs[model][:-1] + b"\x00"
    task = coordinator.offer(coordinator.add_plan(model), model)
    site.work_until(lambda: coordinator.settled(task))
    assert coordinator.results[task]["failure"] == "model-invalid"
    assert site.trainings == []


@pytest.mark.parametrize(
    ("name", "error"), [("site-revoked", NotAdmitted), ("protocol-unsupported", AgentOutdated)]
)
def test_an_agent_that_is_sent_away_ends(coordinator, site, name, error):
    fault(coordinator, "status", "GET", "next", status=401, name=name)
    with pytest.raises(error, match=name):
        site.work_until(lambda: False)
    assert site.records()[-1]["action"] == "agent.stop"


def test_only_the_coordinator_can_send_an_agent_away(coordinator, site):
    task = offer(coordinator)
    fault(coordinator, "impostor", "GET", "next", status=401, name="site-revoked")
    check_done_once(coordinator, site, task)


def test_a_task_that_is_refused_again_and_again_is_not_asked_for_in_a_rush(coordinator, site):
    task = offer(coordinator, BIG[:3])
    coordinator.refuse_results = ["stale-fence"] * 3
    started = clock.monotonic()
    site.work_until(lambda: coordinator.settled(task))
    assert clock.monotonic() - started > 0.5 + 0.25, "second and third setback: 0.5/2 and 1/2 s"
    assert len(site.trainings) == 1


def test_a_delivery_that_keeps_failing_ends_when_the_task_is_not_wanted(coordinator, site, caplog):
    network = site.settings.network.model_copy(update={"timeout_s": 0.5})
    coordinator.broken_results = True
    lost = offer(coordinator, BIG[:3])
    failing = f"/agent/v1/tasks/{lost}/result"

    def close_when_failing() -> bool:
        if lost not in coordinator.closed and failing in caplog.text:
            coordinator.closed.add(lost)
        return lost in coordinator.closed and coordinator.polls > 1

    settings = site.settings.model_copy(update={"network": network})
    site.work_until(close_when_failing, settings=settings)
    assert "task.abandon" in [record["action"] for record in site.records()]
    assert not list((site.folder / "state" / "kept").glob("??/*"))[1:], "the app's state only"


def test_a_repeated_poll_may_be_answered_as_late_as_the_first(coordinator, site, caplog):
    network = site.settings.network.model_copy(update={"poll_s": 1, "timeout_s": 0.3})
    fault(coordinator, "lost-answer", "GET", "next?wait=1")
    settings = site.settings.model_copy(update={"network": network})
    site.work_until(lambda: coordinator.polls > 4, settings=settings)
    failed = [line for line in caplog.messages if "again in" in line]
    assert len(failed) == 1, failed
