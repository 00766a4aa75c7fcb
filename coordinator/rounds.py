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

from fedward.coordinator.errors import EventRefused
from fedward.coordinator.run_state import (
    CLOSED,
    ENDED,
    PENDING,
    Accept,
    Aggregate,
    Aggregated,
    AggregationFailed,
    Attempt,
    AttemptStatus,
    Effects,
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
from fedward.coordinator.selection import select_cohort, task_id
from fedward.protocol.documents import Plan, TaskKind


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


# ---------------------------------------------------------------- operators


def _start(state: RunState, _: Start, now: float) -> Stepped:
    if state.status is not RunStatus.DRAFT:
        raise EventRefused("run-started", f"run {state.run} is {state.status}, expected draft")
    waiting = replace(state, status=RunStatus.WAITING)
    note = Note("run.start", {"plan_sites": len(state.sites), "available": len(state.available)})
    return _then((note,), _begin_when_enough(waiting, now))


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
        return _then((note,), _advance(running, now))
    if attempt.status is AttemptStatus.SELECTING:
        return _then((note,), _select(running, replace(attempt, opened_at=now), now))
    fresh = tuple(replace(t, progress_at=now) if t.status in PENDING else t for t in attempt.tasks)
    grace = None if attempt.grace_until is None else now + state.plan.rounds.grace_s
    running = replace(
        running, attempt=replace(attempt, tasks=fresh, grace_until=grace, opened_at=now)
    )
    wake = Wake(tuple(t.site for t in fresh if t.status in PENDING))
    return _then((note, wake), _settle(running, now))


def _stop(state: RunState, _: Stop, now: float) -> Stepped:
    return _end(state, RunStatus.STOPPED, "stopped by an operator")


def _sites_changed(state: RunState, event: SitesChanged, now: float) -> Stepped:
    available = tuple(site for site in state.sites if site in event.available)
    if state.status in ENDED or available == state.available:
        return replace(state, available=available), ()
    changed = replace(state, available=available)
    if state.status is RunStatus.WAITING:
        return _begin_when_enough(changed, now)
    if state.attempt is None or state.attempt.status in CLOSED:
        return changed, ()
    if state.attempt.status is AttemptStatus.SELECTING:
        return (
            _select(changed, state.attempt, now)
            if state.status is RunStatus.RUNNING
            else (changed, ())
        )
    gone = {t.site for t in state.attempt.tasks if t.status in PENDING} - set(available)
    return _settle(_expire(changed, gone, "site-revoked"), now)


# ---------------------------------------------------------------- sites


def _lease(state: RunState, event: Lease, now: float) -> Stepped:
    attempt, task = _open_task(state, site=event.site)
    if state.status is not RunStatus.RUNNING:
        raise EventRefused(
            "run-not-running", f"run {state.run} is {state.status}, expected running"
        )
    leased = replace(task, status=TaskStatus.LEASED, fence=task.fence + 1, progress_at=now)
    note = Note("task.lease", {"task": task.task, "site": task.site, "fence": leased.fence})
    state = replace(state, attempt=_with_task(attempt, leased))
    return state, (note, TickAt(now + state.plan.rounds.deadline_s))


def _progress(state: RunState, event: Progress, now: float) -> Stepped:
    attempt, task = _open_task(state, site=event.site)
    _check_fence(task, event.fence)
    return replace(state, attempt=_with_task(attempt, replace(task, progress_at=now))), ()


def _accept(state: RunState, event: Accept, now: float) -> Stepped:
    attempt, task = _open_task(state, task=event.task)
    _check_fence(task, event.fence)
    done = replace(task, status=TaskStatus.ACCEPTED, progress_at=now)
    note = Note("task.accept", {"task": task.task, "site": task.site})
    return _then((note,), _settle(replace(state, attempt=_with_task(attempt, done)), now))


def _refuse(state: RunState, event: Refuse, now: float) -> Stepped:
    attempt, task = _open_task(state, task=event.task)
    _check_fence(task, event.fence)
    done = replace(task, status=TaskStatus.REFUSED, progress_at=now, reason=event.reason)
    note = Note(
        "task.refuse", {"task": task.task, "site": task.site, "reason": event.reason}, failed=True
    )
    return _then((note,), _settle(replace(state, attempt=_with_task(attempt, done)), now))


# ---------------------------------------------------------------- time and aggregation


def _tick(state: RunState, _: Tick, now: float) -> Stepped:
    attempt = state.attempt
    if state.status is not RunStatus.RUNNING or attempt is None:
        return state, ()
    deadline_s = state.plan.rounds.deadline_s
    if attempt.status is AttemptStatus.SELECTING and now >= attempt.opened_at + deadline_s:
        got, quorum = len(_candidates(state, attempt.kind)), _quorum(state, attempt)
        return _abort(state, f"too-few-sites: {got} of the {quorum} needed are enrolled", now)
    if attempt.grace_until is not None and now >= attempt.grace_until:
        late, why = {t.site for t in attempt.tasks if t.status in PENDING}, "grace-over"
    else:
        late = {
            t.site
            for t in attempt.tasks
            if t.status in PENDING and now >= t.progress_at + deadline_s
        }
        why = "no-progress"
    return _settle(_expire(state, late, why), now)


def _aggregated(state: RunState, event: Aggregated, now: float) -> Stepped:
    attempt = _aggregating(state)
    done = replace(attempt, status=AttemptStatus.COMMITTED, reason=event.reason)
    details = {
        "model": event.model,
        **_tally(attempt),
        **({"note": event.reason} if event.reason else {}),
    }
    state = replace(state, attempt=done, model=event.model)
    return _then((Note("attempt.commit", _where(attempt) | details),), _advance(state, now))


def _aggregation_failed(state: RunState, event: AggregationFailed, now: float) -> Stepped:
    _aggregating(state)
    return _abort(state, event.reason, now)


# ---------------------------------------------------------------- how an attempt goes on


def _begin_when_enough(state: RunState, now: float) -> Stepped:
    """Leave `waiting` as soon as a quorum of the plan's sites is enrolled."""
    if len(state.available) < state.plan.rounds.quorum:
        return state, ()
    kind, number = (TaskKind.QUERY, 0) if state.plan.prepare else (TaskKind.TRAIN, 1)
    return _open(replace(state, status=RunStatus.RUNNING), kind, number, 1, now)


def _advance(state: RunState, now: float) -> Stepped:
    """Open what follows the closed attempt; nothing while paused."""
    attempt = state.attempt
    if attempt is None or state.status is not RunStatus.RUNNING:
        return state, ()
    plan = state.plan
    if attempt.kind is TaskKind.TRAIN and attempt.status is AttemptStatus.COMMITTED:
        every = plan.evaluate.every
        if every and (attempt.round % every == 0 or attempt.round == plan.rounds.count):
            return _open(state, TaskKind.EVALUATE, attempt.round, 1, now)
    if attempt.kind is not TaskKind.EVALUATE and attempt.status is AttemptStatus.ABORTED:
        if attempt.number < plan.rounds.attempts:
            return _open(state, attempt.kind, attempt.round, attempt.number + 1, now)
        return _end(state, RunStatus.FAILED, f"round {attempt.round}: {attempt.reason}")
    if attempt.round >= plan.rounds.count:
        return _end(state, RunStatus.COMPLETED, None)
    return _open(state, TaskKind.TRAIN, attempt.round + 1, 1, now)


def _open(state: RunState, kind: TaskKind, round_number: int, number: int, now: float) -> Stepped:
    attempt = Attempt(kind, round_number, number, AttemptStatus.SELECTING, opened_at=now)
    return _select(replace(state, attempt=attempt), attempt, now)


def _select(state: RunState, attempt: Attempt, now: float) -> Stepped:
    """Choose the cohort, or wait in `selecting` until enough sites are enrolled."""
    candidates = _candidates(state, attempt.kind)
    later = TickAt(now + state.plan.rounds.deadline_s)
    if len(candidates) < _quorum(state, attempt):
        if attempt.kind is TaskKind.EVALUATE:  # changes no model: nothing to wait for
            return _abort(state, f"too-few-sites: {len(candidates)} to evaluate at", now)
        return state, (later,)
    rules = state.plan.rounds
    cohort = select_cohort(
        candidates,
        size=rules.cohort if attempt.kind is TaskKind.TRAIN else None,
        seed=state.plan.seed,
        round_number=attempt.round,
        attempt=attempt.number,
    )
    tasks = tuple(
        SiteTask(
            task_id(state.run, kind=attempt.kind, round_number=attempt.round, attempt=attempt.number, site=site),
            site, TaskStatus.OFFERED, fence=0, progress_at=now,
        )
        for site in cohort
    )  # fmt: skip
    opened = replace(attempt, status=AttemptStatus.OPEN, tasks=tasks, opened_at=now)
    note = Note(
        "attempt.open",
        _where(attempt) | {"cohort": list(cohort), "quorum": _quorum(state, attempt)},
    )
    return replace(state, attempt=opened), (note, Wake(cohort), later)


def _settle(stepped: Stepped | RunState, now: float) -> Stepped:
    """Close, aggregate or abort the attempt as its tasks allow; otherwise say when to look again."""
    state, effects = stepped if isinstance(stepped, tuple) else (stepped, ())
    attempt = state.attempt
    if attempt is None or attempt.status not in {AttemptStatus.OPEN, AttemptStatus.CLOSING}:
        return state, effects
    accepted = sum(t.status is TaskStatus.ACCEPTED for t in attempt.tasks)
    pending = [t for t in attempt.tasks if t.status in PENDING]
    quorum, rules = _quorum(state, attempt), state.plan.rounds
    if accepted >= quorum and not pending:
        closed = replace(attempt, status=AttemptStatus.AGGREGATING, grace_until=None)
        note = Note("attempt.aggregate", _where(attempt) | _tally(attempt))
        return replace(state, attempt=closed), (*effects, note, Aggregate())
    if accepted + len(pending) < quorum:
        reason = f"quorum-missed: {accepted} of {len(attempt.tasks)} took part, {quorum} are needed"
        return _then(effects, _abort(state, reason, now))
    if accepted >= quorum and attempt.status is AttemptStatus.OPEN:
        until = now + rules.grace_s
        closing = replace(attempt, status=AttemptStatus.CLOSING, grace_until=until)
        note = Note("attempt.close", _where(attempt) | _tally(attempt))
        return replace(state, attempt=closing), (*effects, note, TickAt(until))
    due = [t.progress_at + rules.deadline_s for t in pending]
    if attempt.grace_until is not None:
        due.append(attempt.grace_until)
    return state, (*effects, TickAt(min(due)))


def _abort(state: RunState, reason: str, now: float) -> Stepped:
    attempt = state.attempt
    if attempt is None:
        raise ValueError("no attempt to abort")
    (state, effects) = _expire(
        state, {t.site for t in attempt.tasks if t.status in PENDING}, "attempt-aborted"
    )
    ended = replace(
        state.attempt or attempt, status=AttemptStatus.ABORTED, reason=reason, grace_until=None
    )
    note = Note("attempt.abort", _where(attempt) | _tally(ended) | {"reason": reason}, failed=True)
    return _then((*effects, note), _advance(replace(state, attempt=ended), now))


def _end(state: RunState, status: RunStatus, reason: str | None) -> Stepped:
    effects: Effects = ()
    attempt = state.attempt
    if attempt is not None and attempt.status not in CLOSED:
        state, effects = _expire(
            state, {t.site for t in attempt.tasks if t.status in PENDING}, f"run-{status}"
        )
        aborted = replace(
            state.attempt or attempt,
            status=AttemptStatus.ABORTED,
            reason=f"run-{status}",
            grace_until=None,
        )
        state = replace(state, attempt=aborted)
    details = {"model": state.model, **({"reason": reason} if reason else {})}
    action = {
        RunStatus.COMPLETED: "run.complete",
        RunStatus.FAILED: "run.fail",
        RunStatus.STOPPED: "run.stop",
    }[status]
    note = Note(action, details, failed=status is RunStatus.FAILED)
    return replace(state, status=status, reason=reason), (*effects, note)


# ---------------------------------------------------------------- small parts


def _candidates(state: RunState, kind: TaskKind) -> tuple[str, ...]:
    wanted = state.plan.evaluate.sites if kind is TaskKind.EVALUATE else None
    return tuple(s for s in state.available if wanted is None or s in wanted)


def _quorum(state: RunState, attempt: Attempt) -> int:
    quorum = state.plan.rounds.quorum
    if attempt.kind is TaskKind.EVALUATE:
        return max(1, min(quorum, len(state.plan.evaluate.sites or state.sites)))
    return quorum


def _expire(state: RunState, sites: set[str], reason: str) -> Stepped:
    attempt = state.attempt
    if attempt is None or not sites:
        return state, ()
    gone = [t for t in attempt.tasks if t.site in sites]
    notes = tuple(
        Note("task.expire", {"task": t.task, "site": t.site, "reason": reason}, failed=True)
        for t in gone
    )
    for task in gone:
        attempt = _with_task(attempt, replace(task, status=TaskStatus.EXPIRED, reason=reason))
    return replace(state, attempt=attempt), notes


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


def _with_task(attempt: Attempt, task: SiteTask) -> Attempt:
    return replace(attempt, tasks=tuple(task if t.task == task.task else t for t in attempt.tasks))


def _where(attempt: Attempt) -> dict[str, Any]:
    return {"kind": attempt.kind.value, "round": attempt.round, "attempt": attempt.number}


def _tally(attempt: Attempt) -> dict[str, Any]:
    took_part = [t.site for t in attempt.tasks if t.status is TaskStatus.ACCEPTED]
    return {"took_part": took_part, "invited": len(attempt.tasks)}


def _then(first: Effects, rest: Stepped) -> Stepped:
    return rest[0], first + rest[1]


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
