"""The agent's log tells the people at the site what happens, a line for each thing."""

import logging
import re

import numpy as np
import pytest

W = np.arange(3, dtype=np.float32)


@pytest.fixture(autouse=True)
def _as_in_production(caplog):
    caplog.set_level(logging.INFO)


def offer(coordinator, **config) -> str:
    model = coordinator.add_model(w=W)
    return coordinator.offer(coordinator.add_plan(model), model, **config)


def lines_with(caplog, text: str) -> list[str]:
    return [line for line in caplog.messages if text in line]


def test_the_first_answer_is_told_before_there_is_work(coordinator, site, caplog):
    settings = site.settings.model_copy(
        update={"network": site.settings.network.model_copy(update={"poll_s": 50})}
    )
    site.work_until(lambda: bool(lines_with(caplog, "connected")), settings=settings)
    assert lines_with(caplog, "connected") == [f"connected to the coordinator at {coordinator.url}"]


def test_the_end_of_an_outage_is_told(coordinator, site, caplog):
    tasks = [offer(coordinator, number=number) for number in (1, 2)]
    lost = coordinator.Fault("lost-answer", "POST", f"/agent/v1/tasks/{tasks[0]}/result")
    coordinator.faults.append(lost)
    site.work_until(lambda: coordinator.settled(tasks[1]))
    assert len(lines_with(caplog, "connected to the coordinator")) == 2


@pytest.mark.parametrize(
    ("do", "end"),
    [
        ("", r"done in \d+\.\d s"),
        ("raise", "failed: app-raised, the traceback is above"),
        ("nan", "failed: non-finite, the reason is above"),
    ],
)
def test_a_line_says_what_a_task_came_to(coordinator, site, caplog, do, end):
    task = offer(coordinator, do=do, number=3)
    site.work_until(lambda: coordinator.settled(task))
    (line,) = lines_with(caplog, "train of round 3 of run-aaaaaa: ")
    assert re.fullmatch(f"train of round 3 of run-aaaaaa: {end}", line)


def test_a_refusal_without_details_ends_with_its_reason(coordinator, site, caplog):
    late = offer(coordinator)
    coordinator.refuse_results = ["round-closed"]
    coordinator.on_refusal = lambda: coordinator.closed.add(late)
    site.work_until(lambda: late in coordinator.closed and coordinator.polls > 1)
    (line,) = lines_with(caplog, "train of round 1 of run-aaaaaa: ")
    assert line.endswith(": not taken by the coordinator: round-closed")
