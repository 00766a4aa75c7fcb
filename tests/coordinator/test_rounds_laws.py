"""What holds of the round machine after every history of events."""

from hypothesis import given, settings
from hypothesis import strategies as st

from fedward.coordinator.attempts import tally
from fedward.coordinator.errors import EventRefused
from fedward.coordinator.rounds import MAX_LEASES
from fedward.coordinator.run_state import (
    ENDED,
    Accept,
    Aggregate,
    Aggregated,
    AggregationFailed,
    AttemptStatus,
    Event,
    Lease,
    Pause,
    Refuse,
    Resume,
    RunStatus,
    SitesChanged,
    Start,
    TaskStatus,
    Tick,
)
from fedward.protocol.documents import EvaluateRules

from .round_driver import M1, SITES, Driver

EVENTS = st.one_of(
    st.sampled_from(
        [Start(), Pause(), Resume(), Tick(), Tick(), Aggregated(M1), AggregationFailed("x")]
    ),
    st.sampled_from(SITES).map(Lease),
    st.tuples(st.sampled_from(["accept", "refuse"]), st.sampled_from(SITES), st.integers(0, 3)),
    st.lists(st.sampled_from(SITES), unique=True).map(lambda s: SitesChanged(tuple(s))),
    st.floats(0, 60),
)


def _event(d: Driver, drawn: object) -> Event | None:
    if isinstance(drawn, float):
        d.now += drawn
        return Tick()
    if isinstance(drawn, tuple):
        what, site, fence = drawn
        if d.state.attempt is None or site not in {t.site for t in d.state.attempt.tasks}:
            return None
        task = d.task(site).task
        return Accept(task, fence) if what == "accept" else Refuse(task, fence, "x")
    return drawn


@settings(max_examples=300, deadline=None)
@given(st.lists(EVENTS, max_size=80))
def test_no_history_aggregates_below_quorum_or_moves_backwards(history: list[object]) -> None:
    d = Driver(prepare="statistics", evaluate=EvaluateRules(every=1))
    place = -1
    for drawn in history:
        event, before = _event(d, drawn), d.state
        if event is None:
            continue
        try:
            d.send(event)
        except EventRefused:
            assert d.state == before
            continue
        if Aggregate() in d.effects:
            assert len(tally(d.state.attempt)["took_part"]) >= 2
        if before.model != d.state.model:
            assert isinstance(event, Aggregated)
        now_at = d.state.attempt.round if d.state.attempt else -1
        assert now_at >= place
        place = now_at


@settings(max_examples=200, deadline=None)
@given(st.lists(EVENTS, max_size=40), st.sets(st.sampled_from(SITES)))
def test_any_history_ends_when_time_passes(history: list[object], alive: set[str]) -> None:
    d = Driver(evaluate=EvaluateRules(every=1))
    for drawn in [Start(), *history]:
        event = _event(d, drawn)
        try:
            d.send(event) if event else None
        except EventRefused:
            continue
    if d.state.status is RunStatus.PAUSED:
        d.send(Resume())
    for _ in range(300):
        if d.state.status in {RunStatus.WAITING, *ENDED}:
            break
        d.now += 100
        if d.attempt_status is AttemptStatus.AGGREGATING:
            d.send(Aggregated(M1))
            continue
        for task in d.state.attempt.tasks:
            pending = task.status in {TaskStatus.OFFERED, TaskStatus.LEASED}
            if task.site in alive and pending and task.fence < MAX_LEASES:
                d.send(Lease(task.site))
        d.send(Tick())
    assert d.state.status in {RunStatus.WAITING, *ENDED}
