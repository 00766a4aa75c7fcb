"""`kill -9` at any moment neither loses nor repeats a finished training; SIGTERM ends cleanly."""

import os
import signal
import sqlite3
from contextlib import closing

import numpy as np
import pytest

from fedward.client import agent
from fedward.client.errors import InvalidState, NotEnrolled, StateInUse

BIG = np.arange(2_400_000, dtype=np.float32)


def offer(coordinator, number=1, **config) -> str:
    model = coordinator.add_model(w=BIG)
    return coordinator.offer(coordinator.add_plan(model), model, number=number, **config)


def kill(process) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait(30)


@pytest.mark.parametrize("moment", ["HEAD /agent/v1/uploads", "PUT /agent/v1/uploads"])
def test_a_kill_while_delivering_resumes_without_training_again(coordinator, site, moment):
    task = offer(coordinator)
    process = site.start_process()
    coordinator.wait_for(
        lambda: any(f"{m} {p}".startswith(moment) for m, p in coordinator.requests)
    )
    kill(process)
    site.work_until(lambda: coordinator.settled(task))
    assert len(site.trainings) == 1
    np.testing.assert_array_equal(coordinator.update_of(task)["w"], np.ones_like(BIG))


def test_a_kill_after_the_result_was_taken_sends_nothing_twice(coordinator, site):
    first = offer(coordinator)
    process = site.start_process()
    coordinator.wait_for(lambda: first in coordinator.receipts)
    kill(process)
    second = offer(coordinator, 2)
    site.work_until(lambda: coordinator.settled(second))
    assert [line.split()[1] for line in site.trainings] == ["train", "train"]
    assert coordinator.results[second]["metrics"]["seen"] == 2, "the first one's state is kept"


def test_a_kill_while_training_does_the_task_again_from_the_same_state(coordinator, site):
    first = offer(coordinator)
    site.work_until(lambda: coordinator.settled(first))
    os.mkfifo(site.folder / "go-on")
    second = offer(coordinator, 2, do="wait-for-file")
    process = site.start_process()
    coordinator.wait_for(lambda: len(site.trainings) == 2)  # woken by heartbeats
    kill(process)
    coordinator.tasks[-1]["config"] = {"server-round": 2}
    site.work_until(lambda: coordinator.settled(second))
    assert len(site.trainings) == 3
    assert coordinator.results[second]["metrics"]["seen"] == 2
    (site.folder / "go-on").open("wb", buffering=0).close()  # lets the orphan go


@pytest.mark.parametrize("rename", [1, 2, 3, 4], ids=["plan", "model", "update", "state"])
def test_a_power_cut_after_a_file_and_before_its_row_does_no_harm(coordinator, site, rename):
    first = offer(coordinator)
    process = site.start_process(die_after_rename=rename)
    assert process.wait(30) == -signal.SIGKILL
    second = offer(coordinator, 2)
    site.work_until(lambda: coordinator.settled(second))
    np.testing.assert_array_equal(coordinator.update_of(first)["w"], np.ones_like(BIG))
    assert [coordinator.results[t]["metrics"]["seen"] for t in (first, second)] == [1, 2]
    kept = list((site.folder / "state" / "kept").glob("??/*"))
    assert len(kept) == 1, "the app's state; an update that was answered is of no use any more"


def test_sigterm_ends_the_agent_and_its_worker(coordinator, site):
    offer(coordinator, do="hang")
    process = site.start_process()
    coordinator.wait_for(lambda: len(site.trainings) == 1)
    process.terminate()
    assert process.wait(30) == 0
    worker = int(site.trainings[0].split()[0])
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)
    assert site.records()[-1]["action"] == "agent.stop"


def test_a_second_agent_on_the_same_folder_is_refused(coordinator, site):
    process = site.start_process()
    coordinator.wait_for(lambda: coordinator.polls >= 1)
    with pytest.raises(StateInUse, match="another agent"):
        agent.run(site.settings)
    process.terminate()
    process.wait(30)


def test_what_cannot_be_recorded_is_not_sent(coordinator, site):
    task = offer(coordinator)
    with closing(sqlite3.connect(site.folder / "state" / "agent.db")) as other:
        # the disk is full as soon as the finished training shall be recorded
        other.execute(
            "CREATE TRIGGER full BEFORE INSERT ON audit_events WHEN NEW.action = 'egress.begin'"
            " BEGIN SELECT RAISE(ABORT, 'disk full'); END"
        )
    with pytest.raises(sqlite3.IntegrityError, match="disk full"):
        site.work_until(lambda: False)
    sent = {path.split("/")[3] for method, path in coordinator.requests if method != "GET"}
    assert sent <= {"enrol", "tasks"}, "heartbeats only"
    assert task not in coordinator.results


def test_an_agent_that_is_not_enrolled_says_so(tmp_path, site):
    settings = site.settings.model_copy(update={"state": tmp_path / "empty"})
    with pytest.raises(NotEnrolled, match="enrol"):
        agent.run(settings)


def test_a_folder_of_another_site_is_refused(site):
    with pytest.raises(InvalidState, match="enrolled as 'north'"):
        agent.run(site.settings.model_copy(update={"site": "south"}))
