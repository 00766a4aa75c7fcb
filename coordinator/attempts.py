"""How an attempt opens, closes, and what follows it: the inner half of the round machine.

Called by `rounds.py` only, whose docstring gives the states and rules. Every function takes a
state and returns the next one with its effects.
"""

from collections import Counter
from dataclasses import replace
from typing import Any

from fedward.coordinator.run_state import (
    CLOSED,
    PENDING,
    Aggregate,
    Attempt,
    AttemptStatus,
    Closed,
    Effects,
    Note,
    RunState,
    RunStatus,
    SiteTask,
    Stepped,
    TaskStatus,
    TickAt,
    Wake,
)
from fedward.coordinator.selection import select_cohort, task_id
from fedward.protocol.documents import TaskKind


def begin_when_enough(state: RunState, now: float) -> Stepped:
    """Leave `waiting` as soon as a quorum of the plan's sites is enrolled."""
    if len(state.available) < state.plan.rounds.quorum:
        return state, ()
    kind, number = (TaskKind.QUERY, 0) if state.plan.prepare else (TaskKind.TRAIN, 1)
    return open_attempt(replace(state, status=RunStatus.RUNNING), kind, number, 1, now)


def advance(state: RunState, now: float) -> Stepped:
    """Open what follows the closed attempt; nothing while paused."""
    attempt = state.attempt
    if attempt is None or state.status is not RunStatus.RUNNING:
        return state, ()
    plan = state.plan
    if attempt.kind is TaskKind.TRAIN and attempt.status is AttemptStatus.COMMITTED:
        every = plan.evaluate.every
        if every and (attempt.round % every == 0 or attempt.round == plan.rounds.count):
            return open_attempt(state, TaskKind.EVALUATE, attempt.round, 1, now)
    if attempt.kind is not TaskKind.EVALUATE and attempt.status is AttemptStatus.ABORTED:
        if attempt.number < plan.rounds.attempts:
            return open_attempt(state, attempt.kind, attempt.round, attempt.number + 1, now)
        return end_run(state, RunStatus.FAILED, f"round {attempt.round}: {attempt.reason}")
    if attempt.round >= plan.rounds.count:
        return end_run(state, RunStatus.COMPLETED, None)
    return open_attempt(state, TaskKind.TRAIN, attempt.round + 1, 1, now)


def open_attempt(
    state: RunState, kind: TaskKind, round_number: int, number: int, now: float
) -> Stepped:
    """Begin an attempt in `selecting` and choose its cohort at once where that is possible."""
    attempt = Attempt(kind, round_number, number, AttemptStatus.SELECTING, opened_at=now)
    return select_sites(replace(state, attempt=attempt), attempt, now)


def select_sites(state: RunState, attempt: Attempt, now: float) -> Stepped:
    """Choose the cohort, or wait in `selecting` until enough sites are enrolled."""
    candidates = candidates_for(state, attempt.kind)
    later = TickAt(now + state.plan.rounds.deadline_s)
    if len(candidates) < quorum_of(state, attempt):
        if attempt.kind is TaskKind.EVALUATE:  # changes no model: nothing to wait for
            return abort(state, f"too-few-sites: {len(candidates)} to evaluate at", now)
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
            task_id(
                state.run,
                kind=attempt.kind,
                round_number=attempt.round,
                attempt=attempt.number,
                site=site,
            ),
            site,
            TaskStatus.OFFERED,
            fence=0,
            progress_at=now,
        )
        for site in cohort
    )
    opened = replace(attempt, status=AttemptStatus.OPEN, tasks=tasks, opened_at=now)
    note = Note(
        "attempt.open",
        where(attempt) | {"cohort": list(cohort), "quorum": quorum_of(state, attempt)},
    )
    return replace(state, attempt=opened), (note, Wake(cohort), later)


def settle(state: RunState, now: float) -> Stepped:
    """Close, aggregate or abort the attempt as its tasks allow, else say when to look again."""
    attempt = state.attempt
    if attempt is None or attempt.status not in {AttemptStatus.OPEN, AttemptStatus.CLOSING}:
        return state, ()
    accepted = sum(t.status is TaskStatus.ACCEPTED for t in attempt.tasks)
    pending = [t for t in attempt.tasks if t.status in PENDING]
    quorum, rules = quorum_of(state, attempt), state.plan.rounds
    if accepted >= quorum and not pending:
        closed = replace(attempt, status=AttemptStatus.AGGREGATING, grace_until=None)
        note = Note("attempt.aggregate", where(attempt) | tally(attempt))
        return replace(state, attempt=closed), (note, Aggregate())
    if accepted + len(pending) < quorum:
        return abort(state, _missed(attempt, accepted, quorum), now)
    if accepted >= quorum and attempt.status is AttemptStatus.OPEN:
        until = now + rules.grace_s
        closing = replace(attempt, status=AttemptStatus.CLOSING, grace_until=until)
        note = Note("attempt.close", where(attempt) | tally(attempt))
        return replace(state, attempt=closing), (note, TickAt(until))
    due = [t.progress_at + rules.deadline_s for t in pending]
    if attempt.grace_until is not None:
        due.append(attempt.grace_until)
    return state, (TickAt(min(due)),)


def _missed(attempt: Attempt, accepted: int, quorum: int) -> str:
    why = Counter(t.reason for t in attempt.tasks if t.reason is not None)
    counted = ", ".join(f"{reason}: {count}" for reason, count in sorted(why.items()))
    missed = f"quorum-missed: {accepted} of {len(attempt.tasks)} took part, {quorum} are needed"
    return f"{missed} ({counted})" if counted else missed


def abort(state: RunState, reason: str, now: float) -> Stepped:
    """Close the attempt without a result and go on to what follows."""
    if state.attempt is None:
        raise ValueError("no attempt to abort")
    ended, effects = _given_up(state.attempt, reason=reason, why="attempt-aborted")
    details = where(ended) | tally(ended) | {"reason": reason}
    note = Note("attempt.abort", details, failed=True)
    return followed_by((*effects, Closed(ended), note), advance(replace(state, attempt=ended), now))


def end_run(state: RunState, status: RunStatus, reason: str | None) -> Stepped:
    """Close the attempt that is open, if one is, and end the run."""
    effects: Effects = ()
    if state.attempt is not None and state.attempt.status not in CLOSED:
        why = f"run-{status}"
        aborted, effects = _given_up(state.attempt, reason=why, why=why)
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


def candidates_for(state: RunState, kind: TaskKind) -> tuple[str, ...]:
    """Return the enrolled sites that may be selected for an attempt of this kind."""
    wanted = state.plan.evaluate.sites if kind is TaskKind.EVALUATE else None
    return tuple(s for s in state.available if wanted is None or s in wanted)


def quorum_of(state: RunState, attempt: Attempt) -> int:
    """Return how many answers the attempt needs."""
    quorum = state.plan.rounds.quorum
    if attempt.kind is TaskKind.EVALUATE:
        return max(1, min(quorum, len(state.plan.evaluate.sites or state.sites)))
    return quorum


def pending_sites(attempt: Attempt) -> set[str]:
    """Return the sites whose answer is waited for."""
    return {t.site for t in attempt.tasks if t.status in PENDING}


def expire(attempt: Attempt, sites: set[str], why: str) -> tuple[Attempt, Effects]:
    """Expire these sites' tasks."""
    tasks = tuple(
        replace(t, status=TaskStatus.EXPIRED, reason=why) if t.site in sites else t
        for t in attempt.tasks
    )
    notes = tuple(
        Note("task.expire", {"task": t.task, "site": t.site, "reason": why}, failed=True)
        for t in tasks
        if t.site in sites
    )
    return replace(attempt, tasks=tasks), notes


def _given_up(attempt: Attempt, *, reason: str, why: str) -> tuple[Attempt, Effects]:
    """Return the attempt as aborted, with its pending tasks expired."""
    ended, effects = expire(attempt, pending_sites(attempt), why)
    return (
        replace(ended, status=AttemptStatus.ABORTED, reason=reason, grace_until=None),
        effects,
    )


def with_task(attempt: Attempt, task: SiteTask) -> Attempt:
    """Return the attempt with the task of the same id replaced."""
    return replace(attempt, tasks=tuple(task if t.task == task.task else t for t in attempt.tasks))


def where(attempt: Attempt) -> dict[str, Any]:
    """Return the keys that name an attempt in a record."""
    return {"kind": attempt.kind.value, "round": attempt.round, "attempt": attempt.number}


def tally(attempt: Attempt) -> dict[str, Any]:
    """Return who took part and how many were invited."""
    took_part = [t.site for t in attempt.tasks if t.status is TaskStatus.ACCEPTED]
    return {"took_part": took_part, "invited": len(attempt.tasks)}


def followed_by(first: Effects, rest: Stepped) -> Stepped:
    """Put effects before those of a later step."""
    return rest[0], first + rest[1]
