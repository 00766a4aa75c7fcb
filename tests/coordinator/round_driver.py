"""Feeds events to the round machine, with a clock that the test sets."""

from fedward.coordinator.rounds import new_run, step
from fedward.coordinator.run_state import (
    Accept,
    AttemptStatus,
    Event,
    Lease,
    Note,
    RunState,
    SiteTask,
)
from fedward.protocol.documents import AppRef, EvaluateRules, Plan, RoundRules, TaskKind

M0, M1, M2 = ("sha256:" + c * 64 for c in "012")
SITES = ("a", "b", "c")


def plan(**changes: object) -> Plan:
    fields = {
        "name": "test",
        "study": "study",
        "app": AppRef(recipe="tabular"),
        "model": M0,
        "rounds": RoundRules(count=2, quorum=2, deadline_s=100, grace_s=10, attempts=2),
        "evaluate": EvaluateRules(every=0),
    }
    return Plan.model_validate(fields | changes)


class Driver:
    """Feeds events to the machine and remembers what it asked for."""

    def __init__(
        self, sites: tuple[str, ...] = SITES, available: tuple[str, ...] = SITES, **changes: object
    ) -> None:
        self.state: RunState = new_run(
            "run-000001", plan(**changes), sites=sites, available=available
        )
        self.effects: list[object] = []
        self.now = 0.0

    def send(self, event: Event) -> "Driver":
        self.state, effects = step(self.state, event, now=self.now)
        self.effects = list(effects)
        return self

    def task(self, site: str) -> SiteTask:
        assert self.state.attempt is not None
        return next(t for t in self.state.attempt.tasks if t.site == site)

    def answer(self, *sites: str) -> "Driver":
        for site in sites:
            self.send(Lease(site))
            self.send(Accept(self.task(site).task, self.task(site).fence))
        return self

    def at(self, now: float) -> "Driver":
        self.now = now
        return self

    @property
    def attempt_status(self) -> AttemptStatus:
        assert self.state.attempt is not None
        return self.state.attempt.status

    @property
    def notes(self) -> list[str]:
        return [e.action for e in self.effects if isinstance(e, Note)]

    @property
    def place(self) -> tuple[TaskKind, int, int]:
        assert self.state.attempt is not None
        return self.state.attempt.kind, self.state.attempt.round, self.state.attempt.number
