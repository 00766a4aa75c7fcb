"""The round machine: the only place where a run changes.

A run goes through rounds; in a round it makes attempts of one kind after another, and an
attempt is a set of tasks, one for each selected site.

Run      draft -> waiting -> running <-> paused; ends completed, failed or stopped.
         `waiting` lasts until a quorum of the plan's sites is enrolled.
Attempt  selecting -> open -> closing -> aggregating -> committed | aborted.
         `selecting` waits for sites, `closing` is the grace after the quorum's last update.
Task     offered -> leased -> accepted | refused | expired.

Order of attempts: round 0 is one `query` attempt, where the plan prepares; each round from 1
is a `train` attempt, then an `evaluate` attempt where the plan asks for one. A train or query
attempt that misses its quorum is aborted and tried again, `attempts` times in all, then the run
fails. An evaluation that misses its quorum is aborted and the run goes on: it changes no model.

`step(state, event, now=...)` returns the next state and the effects that the shell performs
after it has stored the state. A refused event raises `EventRefused` and changes nothing.
Times are seconds since the epoch.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fedward.coordinator.attempts import (
    abort,
    advance,
    begin_when_enough,
    candidates_for,
    end_run,
    expire,
    followed_by,
    pending_sites,
    quorum_of,
    select_sites,
    settle,
    tally,
    where,
    with_task,
)
from fedward.coordinator.errors import EventRefused
from fedward.coordinator.run_state import (
    CLOSED,
    ENDED,
    PENDING,
    Accept,
    Aggregated,
    AggregationFailed,
    Attempt,
    AttemptStatus,
    Closed,
    Event,
    Lease,
    Note,
    Pause,
    Progress,
    Refuse,
    Resume,
    RunState,
    RunStatus,
    SitesChanged,
    SiteTask,
    Start,
    Stepped,
    Stop,
    TaskStatus,
    Tick,
    TickAt,
    Wake,
)
from fedward.protocol.documents import Plan

MAX_LEASES = 50
"""How often one task is handed out before its site is given up for the attempt."""


def new_run(
    run: str, plan: Plan, *, sites: tuple[str, ...], available: tuple[str, ...]
) -> RunState:
    """Return a draft of a run of `plan` over `sites`, of which `available` are enrolled."""
    return RunState(
        run=run,
        plan=plan,
        sites=tuple(sorted(sites)),
        available=tuple(sorted(available)),
        model=plan.model,
    )


def step(state: RunState, event: Event, *, now: float) -> Stepped:
    """Apply one event.

    Raises:
        EventRefused: the event does not fit the state; nothing has changed.
    """
    if state.status in ENDED and not isinstance(event, Tick | SitesChanged):
        raise EventRefused("run-ended", f"run {state.run} is {state.status}")
    return _HANDLERS[type(event)](state, event, now)


def refusal(state: RunState, event: Event, *, now: float) -> EventRefused | None:
    """Return why `step` would refuse the event, None where it would not."""
    try:
        step(state, event, now=now)
    except EventRefused as error:
        return error
    return None


# ---------------------------------------------------------------- operators


def _start(state: RunState, _: Start, now: float) -> Stepped:
    if state.status is not RunStatus.DRAFT:
        raise EventRefused("run-started", f"run {state.run} is {state.status}, expected draft")
    waiting = replace(state, status=RunStatus.WAITING)
    note = Note("run.start", {"plan_sites": len(state.sites), "available": len(state.available)})
    return followed_by((note,), begin_when_enough(waiting, now))


def _pause(state: RunState, _: Pause, now: float) -> Stepped:
    if state.status is not RunStatus.RUNNING:
        raise EventRefused(
            "run-not-running", f"run {state.run} is {state.status}, expected running"
        )
    return replace(state, status=RunStatus.PAUSED), (Note("run.pause", {}),)


def _resume(state: RunState, _: Resume, now: float) -> Stepped:
    if state.status is not RunStatus.PAUSED:
        raise EventRefused("run-not-paused", f"run {state.run} is {state.status}, expected paused")
    running = replace(state, status=RunStatus.RUNNING)
    note = Note("run.resume", {})
    attempt = state.attempt
    if attempt is None or attempt.status in CLOSED:
        return followed_by((note,), advance(running, now))
    if attempt.status is AttemptStatus.SELECTING:
        return followed_by((note,), select_sites(running, replace(attempt, opened_at=now), now))
    fresh = tuple(replace(t, progress_at=now) if t.status in PENDING else t for t in attempt.tasks)
    grace = None if attempt.grace_until is None else now + state.plan.rounds.grace_s
    running = replace(
        running, attempt=replace(attempt, tasks=fresh, grace_until=grace, opened_at=now)
    )
    wake = Wake(tuple(t.site for t in fresh if t.status in PENDING))
    return followed_by((note, wake), settle(running, now))


def _stop(state: RunState, event: Stop, now: float) -> Stepped:
    return end_run(state, RunStatus.STOPPED, event.reason)


def _sites_changed(state: RunState, event: SitesChanged, now: float) -> Stepped:
    available = tuple(site for site in state.sites if site in event.available)
    if state.status in ENDED or available == state.available:
        return replace(state, available=available), ()
    changed = replace(state, available=available)
    if state.status is RunStatus.WAITING:
        return begin_when_enough(changed, now)
    if state.attempt is None or state.attempt.status in CLOSED:
        return changed, ()
    if state.attempt.status is AttemptStatus.SELECTING:
        if state.status is not RunStatus.RUNNING:
            return changed, ()
        return select_sites(changed, state.attempt, now)
    gone = pending_sites(state.attempt) - set(available)
    return _expired(changed, state.attempt, gone, "site-revoked", now)


# ---------------------------------------------------------------- sites


def _lease(state: RunState, event: Lease, now: float) -> Stepped:
    attempt, task = _open_task(state, site=event.site)
    if state.status is not RunStatus.RUNNING:
        raise EventRefused(
            "run-not-running", f"run {state.run} is {state.status}, expected running"
        )
    if task.fence >= MAX_LEASES:
        # An agent that dies over and over at this task must not hold the round for ever: its
        # deadline, no longer renewed, expires it.
        raise EventRefused(
            "leased-too-often",
            f"task {task.task} was leased {task.fence} times, limit {MAX_LEASES}",
        )
    leased = replace(task, status=TaskStatus.LEASED, fence=task.fence + 1, progress_at=now)
    note = Note("task.lease", {"task": task.task, "site": task.site, "fence": leased.fence})
    state = replace(state, attempt=with_task(attempt, leased))
    return state, (note, TickAt(now + state.plan.rounds.deadline_s))


def _progress(state: RunState, event: Progress, now: float) -> Stepped:
    attempt, task = _open_task(state, site=event.site)
    _check_fence(task, event.fence)
    return replace(state, attempt=with_task(attempt, replace(task, progress_at=now))), ()


def _accept(state: RunState, event: Accept, now: float) -> Stepped:
    attempt, task = _open_task(state, task=event.task)
    _check_fence(task, event.fence)
    done = replace(task, status=TaskStatus.ACCEPTED, progress_at=now)
    note = Note("task.accept", {"task": task.task, "site": task.site})
    return followed_by((note,), settle(replace(state, attempt=with_task(attempt, done)), now))


def _refuse(state: RunState, event: Refuse, now: float) -> Stepped:
    attempt, task = _open_task(state, task=event.task)
    _check_fence(task, event.fence)
    done = replace(task, status=TaskStatus.REFUSED, progress_at=now, reason=event.reason)
    note = Note(
        "task.refuse", {"task": task.task, "site": task.site, "reason": event.reason}, failed=True
    )
    return followed_by((note,), settle(replace(state, attempt=with_task(attempt, done)), now))


# ---------------------------------------------------------------- time and aggregation


def _tick(state: RunState, _: Tick, now: float) -> Stepped:
    attempt = state.attempt
    if state.status is not RunStatus.RUNNING or attempt is None:
        return state, ()
    attempt = _not_in_future(attempt, now, grace_s=state.plan.rounds.grace_s)
    state = replace(state, attempt=attempt)
    deadline_s = state.plan.rounds.deadline_s
    if attempt.status is AttemptStatus.SELECTING and now < attempt.opened_at + deadline_s:
        return state, (TickAt(attempt.opened_at + deadline_s),)
    if attempt.status is AttemptStatus.SELECTING:
        got, quorum = len(candidates_for(state, attempt.kind)), quorum_of(state, attempt)
        return abort(state, f"too-few-sites: {got} of the {quorum} needed are enrolled", now)
    if attempt.grace_until is not None and now >= attempt.grace_until:
        return _expired(state, attempt, pending_sites(attempt), "grace-over", now)
    silent = {t.site for t in attempt.tasks if now >= t.progress_at + deadline_s}
    return _expired(state, attempt, silent & pending_sites(attempt), "no-progress", now)


def _not_in_future(attempt: Attempt, now: float, *, grace_s: float) -> Attempt:
    """Bring forward what a clock that was set back has left in the future: it began now."""
    grace = attempt.grace_until
    return replace(
        attempt,
        opened_at=min(attempt.opened_at, now),
        grace_until=None if grace is None else min(grace, now + grace_s),
        tasks=tuple(replace(t, progress_at=min(t.progress_at, now)) for t in attempt.tasks),
    )


def _expired(state: RunState, attempt: Attempt, sites: set[str], why: str, now: float) -> Stepped:
    changed, notes = expire(attempt, sites, why)
    return followed_by(notes, settle(replace(state, attempt=changed), now))


def _aggregated(state: RunState, event: Aggregated, now: float) -> Stepped:
    attempt = _aggregating(state)
    done = replace(attempt, status=AttemptStatus.COMMITTED, reason=event.reason)
    details = {
        "model": event.model,
        **tally(attempt),
        **({"note": event.reason} if event.reason else {}),
    }
    state = replace(state, attempt=done, model=event.model)
    note = Note("attempt.commit", where(attempt) | details)
    return followed_by((Closed(done), note), advance(state, now))


def _aggregation_failed(state: RunState, event: AggregationFailed, now: float) -> Stepped:
    _aggregating(state)
    return abort(state, event.reason, now)


# ---------------------------------------------------------------- checks


def _open_task(
    state: RunState, *, site: str | None = None, task: str | None = None
) -> tuple[Attempt, SiteTask]:
    attempt = state.attempt
    known = (
        [t for t in attempt.tasks if site in (None, t.site) and task in (None, t.task)]
        if attempt
        else []
    )
    if attempt is None or not known:
        raise EventRefused(
            "round-closed",
            f"task {task or ''} of {site or 'this site'} is not of the current attempt",
        )
    found = known[0]
    if found.status is TaskStatus.ACCEPTED:
        raise EventRefused("duplicate", f"task {found.task} has been accepted already")
    if found.status not in PENDING or attempt.status not in {
        AttemptStatus.OPEN,
        AttemptStatus.CLOSING,
    }:
        raise EventRefused(
            "round-closed", f"task {found.task} is {found.status}, its attempt {attempt.status}"
        )
    return attempt, found


def _check_fence(task: SiteTask, fence: int) -> None:
    if fence != task.fence or task.status is not TaskStatus.LEASED:
        raise EventRefused(
            "stale-fence", f"task {task.task}: got fence {fence}, expected {task.fence}"
        )


def _aggregating(state: RunState) -> Attempt:
    if state.attempt is None or state.attempt.status is not AttemptStatus.AGGREGATING:
        raise EventRefused("not-aggregating", f"run {state.run} has no attempt that is aggregating")
    return state.attempt


_HANDLERS: dict[type, Callable[[RunState, Any, float], Stepped]] = {
    Start: _start,
    Pause: _pause,
    Resume: _resume,
    Stop: _stop,
    SitesChanged: _sites_changed,
    Lease: _lease,
    Progress: _progress,
    Accept: _accept,
    Refuse: _refuse,
    Tick: _tick,
    Aggregated: _aggregated,
    AggregationFailed: _aggregation_failed,
}
