"""Takes one step of a run inside a transaction: state, rows, audit records, timers, wake-ups.

`rounds.step` decides; here its outcome is stored. The rows of attempts and tasks repeat for
queries what the state says and keep what it forgets: the state holds the newest attempt only.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from pydantic import TypeAdapter

from fedward.coordinator import audit, rounds
from fedward.coordinator.actors import Actor
from fedward.coordinator.context import Context
from fedward.coordinator.errors import NotFound
from fedward.coordinator.run_state import (
    CLOSED,
    ENDED,
    PENDING,
    Aggregate,
    Attempt,
    AttemptStatus,
    Closed,
    Effects,
    Event,
    Note,
    RunState,
    RunStatus,
    SiteTask,
    TickAt,
    Wake,
)
from fedward.coordinator.store import rows, run_queries
from fedward.coordinator.store.records import AttemptRecord, PlanRecord, RunRecord, TaskRecord
from fedward.coordinator.store.unit_of_work import Snapshot, UnitOfWork
from fedward.protocol.documents import Plan
from fedward.protocol.records import Subject

TICK, AGGREGATE = "tick", "aggregate"
_STATE = TypeAdapter(RunState)

_PLANS: dict[str, Plan] = {}
"""By digest, which names one plan in every database. Every step needs one: reading it anew took
8 % of the time of a round (three sites, a small model)."""
_PLANS_KEPT = 256

Details = Mapping[str, Mapping[str, Any]]
"""By action: what the record of that action says beside what the step's note says."""


def get(connection: Snapshot, run: str) -> RunRecord:
    """Return the run's record. Raises NotFound."""
    record = rows.get(connection, RunRecord, run)
    if record is None:
        raise NotFound("unknown-run", f"no run {run}", run=run)
    return record


def plan_of(connection: Snapshot, digest: str) -> Plan:
    """Return a plan. Raises NotFound."""
    record = rows.get(connection, PlanRecord, digest)
    if record is None:
        raise NotFound("unknown-plan", f"no plan {digest}", plan=digest)
    return Plan.model_validate(record.document)


def plan_of_run(connection: Snapshot, record: RunRecord) -> Plan:
    """Return the run's plan, from memory where it was read before: it never changes."""
    plan = _PLANS.get(record.plan)
    if plan is None:
        plan = plan_of(connection, record.plan)
        if len(_PLANS) >= _PLANS_KEPT:
            _PLANS.clear()
        _PLANS[record.plan] = plan
    return plan


def load_state(connection: Snapshot, record: RunRecord) -> RunState:
    """Return the run's state as it was stored last."""
    plan = plan_of_run(connection, record)
    return _STATE.validate_python({**record.state, "plan": plan})


def dump_state(state: RunState) -> Any:
    """Return the JSON form of a state, without its plan."""
    return _STATE.dump_python(state, mode="json", exclude={"plan"})


def take(
    context: Context,
    work: UnitOfWork,
    *,
    record: RunRecord,
    event: Event,
    actor: Actor,
    details: Details | None = None,
) -> RunState:
    """Apply an event to a run, store all that follows, and return the new state.

    Args:
        record: the run's row as read in this transaction.
        actor: whom the audit records name.
        details: allow-listed facts that the machine does not know, by action.

    Raises:
        EventRefused: the event does not fit; nothing has changed.
    """
    now = context.clock()
    before = load_state(work.connection, record)
    after, effects = rounds.step(before, event, now=now)
    _store_run(work, record, after, now=now)
    notes = [effect for effect in effects if isinstance(effect, Note)]
    for attempt in _changed_attempts(after, effects):
        _store_attempt(work, before, after, attempt, now=now)
    for note in notes:
        _record(context, work, record=record, before=before, note=note, actor=actor, more=details)
    _schedule(context, work, after, effects)
    _follow(context, work, before, after, effects)
    return after


# ---------------------------------------------------------------- rows


def _store_run(work: UnitOfWork, record: RunRecord, after: RunState, *, now: float) -> None:
    begun = after.status is not RunStatus.DRAFT
    rows.change(
        work.connection,
        RunRecord,
        after.run,
        state=dump_state(after),
        status=after.status.value,
        round=after.attempt.round if after.attempt else 0,
        model=after.model,
        started=now if begun and record.started is None else record.started,
        ended=now if after.status in ENDED and record.ended is None else record.ended,
    )


def _changed_attempts(after: RunState, effects: Effects) -> list[Attempt]:
    """Return the attempts that a step may have changed: those that it closed, then the newest."""
    closed = [effect.attempt for effect in effects if isinstance(effect, Closed)]
    replaced = [attempt for attempt in closed if not _same(attempt, after.attempt)]
    return replaced if after.attempt is None else [*replaced, after.attempt]


def _store_attempt(
    work: UnitOfWork, before: RunState, after: RunState, attempt: Attempt, *, now: float
) -> None:
    """Write an attempt, where it is new or changed its status, and the tasks that changed."""
    old = before.attempt if _same(before.attempt, attempt) else None
    if attempt == old:
        return
    key = (after.run, attempt.round, attempt.kind.value, attempt.number)
    columns = _attempt_columns(attempt, model=after.model, now=now)
    if old is None:
        rows.add(
            work.connection,
            AttemptRecord(*key, opened=attempt.opened_at, model_before=after.model, **columns),
        )
    elif old.status is not attempt.status:
        rows.change(work.connection, AttemptRecord, *key, **columns)
    known = {} if old is None else {task.task: task for task in old.tasks}
    for task in attempt.tasks:
        _store_task(work, after.run, attempt, task, old=known.get(task.task), now=now)


def _attempt_columns(attempt: Attempt, *, model: str, now: float) -> dict[str, Any]:
    """Return what an attempt's row says of its status."""
    columns: dict[str, Any] = {"status": attempt.status.value, "reason": attempt.reason}
    if attempt.status is AttemptStatus.COMMITTED:
        columns |= {"reason": None, "note": attempt.reason, "model_after": model}
    if attempt.status is AttemptStatus.AGGREGATING:
        columns["aggregating"] = now
    if attempt.status in CLOSED:
        columns["closed"] = now
    return columns


def _store_task(
    work: UnitOfWork,
    run: str,
    attempt: Attempt,
    task: SiteTask,
    *,
    old: SiteTask | None,
    now: float,
) -> None:
    if old is None:
        rows.add(work.connection, _task_record(run, attempt, task, now=now))
        return
    if replace(old, progress_at=task.progress_at) == task:
        return
    columns: dict[str, Any] = {
        "status": task.status.value,
        "fence": task.fence,
        "reason": task.reason,
    }
    if task.fence != old.fence:
        columns["leased"] = now
    if task.status not in PENDING:
        columns["finished"] = now
    rows.change(work.connection, TaskRecord, task.task, **columns)


def _task_record(run: str, attempt: Attempt, task: SiteTask, *, now: float) -> TaskRecord:
    return TaskRecord(
        task=task.task,
        run=run,
        round=attempt.round,
        kind=attempt.kind.value,
        attempt=attempt.number,
        site=task.site,
        status=task.status.value,
        fence=task.fence,
        reason=task.reason,
        offered=now,
    )


# ---------------------------------------------------------------- audit, timers, wake-ups


def _record(
    context: Context,
    work: UnitOfWork,
    *,
    record: RunRecord,
    before: RunState,
    note: Note,
    actor: Actor,
    more: Details | None,
) -> None:
    details = {**note.details, **(more or {}).get(note.action, {})}
    number = details.pop("round", None)
    if number is None and note.action.startswith("task.") and before.attempt is not None:
        number = before.attempt.round
    kind, _, _ = note.action.partition(".")
    target = {"run": record.run, "task": details.get("task")}.get(kind)
    audit.append(
        context,
        work,
        actor=actor,
        action=note.action,
        subject=Subject(
            "run" if target is None else kind,
            target or record.run,
            study=record.study,
            run=record.run,
            round=number,
        ),
        outcome="failure" if note.failed else "success",
        reason=details.get("reason"),
        details=details,
    )


def _schedule(context: Context, work: UnitOfWork, after: RunState, effects: Effects) -> None:
    """Keep the run's jobs, and wake the scheduler where one is due earlier than before."""
    if after.status in ENDED:
        for kind in (TICK, AGGREGATE):
            run_queries.finish_job(work.connection, after.run, kind)
        return
    jobs = [(TICK, effect.at) for effect in effects if isinstance(effect, TickAt)]
    if any(isinstance(effect, Aggregate) for effect in effects):
        jobs.append((AGGREGATE, context.clock()))
    moved = [run_queries.schedule(work.connection, after.run, kind, due=due) for kind, due in jobs]
    if any(moved):
        work.after_commit(partial(context.notifier.notify, "jobs"))


def _follow(
    context: Context, work: UnitOfWork, before: RunState, after: RunState, effects: Effects
) -> None:
    """Register what follows the commit: wake-ups, and the removal of files nobody needs."""
    old, new = before.attempt, after.attempt
    if old is not None and (not _same(old, new) or (new is not None and new.status in CLOSED)):
        for task in old.tasks:
            work.after_commit(partial(context.blobs.uploads.discard, task.task))
    topics = [f"site:{site}" for e in effects if isinstance(e, Wake) for site in e.sites]
    for topic in (*topics, f"run:{after.run}"):
        work.after_commit(partial(context.notifier.notify, topic))


# ---------------------------------------------------------------- small parts


def _key(attempt: Attempt) -> tuple[str, int, int]:
    return attempt.kind.value, attempt.round, attempt.number


def _same(one: Attempt | None, other: Attempt | None) -> bool:
    return one is not None and other is not None and _key(one) == _key(other)
