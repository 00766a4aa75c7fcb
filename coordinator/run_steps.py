"""Takes one step of a run inside a transaction: state, rows, audit records, timers, wake-ups.

`rounds.step` decides; here its outcome is stored. The rows of attempts and tasks repeat for
queries what the state says and keep what it forgets: the state holds the newest attempt only,
so an attempt that a step both ends and replaces is written from the step's notes.
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
    Aggregate,
    Attempt,
    AttemptStatus,
    Effects,
    Event,
    Note,
    RunState,
    RunStatus,
    SiteTask,
    TaskStatus,
    TickAt,
    Wake,
)
from fedward.coordinator.store import rows, run_queries
from fedward.coordinator.store.records import AttemptRecord, PlanRecord, RunRecord, TaskRecord
from fedward.coordinator.store.unit_of_work import Snapshot, UnitOfWork
from fedward.protocol.documents import Plan, TaskKind
from fedward.protocol.records import Subject

TICK, AGGREGATE = "tick", "aggregate"
_STATE = TypeAdapter(RunState)
_FINISHED = frozenset({TaskStatus.ACCEPTED, TaskStatus.REFUSED, TaskStatus.EXPIRED})
_ENDED_ATTEMPT = {
    "attempt.commit": AttemptStatus.COMMITTED,
    "attempt.abort": AttemptStatus.ABORTED,
}
_ENDED_TASK = {"task.refuse": TaskStatus.REFUSED, "task.expire": TaskStatus.EXPIRED}

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


def load_state(connection: Snapshot, record: RunRecord) -> RunState:
    """Return the run's state as it was stored last."""
    plan = plan_of(connection, record.plan)
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
    _store_superseded(work, before, after, notes, now=now)
    if after.attempt is not None:
        _store_attempt(work, before, after, after.attempt, now=now)
    for note in notes:
        _record(context, work, record=record, before=before, note=note, actor=actor, more=details)
    _schedule(work, after, effects, now=now)
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


def _store_attempt(
    work: UnitOfWork, before: RunState, after: RunState, attempt: Attempt, *, now: float
) -> None:
    """Write the newest attempt and those of its tasks that changed."""
    if attempt == before.attempt:
        return
    _put_attempt(work, after, attempt, now=now)
    known = _tasks(before.attempt) if _same(before.attempt, attempt) else {}
    for task in attempt.tasks:
        old = known.get(task.task)
        if old is None:
            rows.add(work.connection, _task_record(after.run, attempt, task, now=now))
        elif replace(old, progress_at=task.progress_at) != task:
            columns: dict[str, Any] = {
                "status": task.status.value,
                "fence": task.fence,
                "reason": task.reason,
            }
            if task.fence != old.fence:
                columns["leased"] = now
            if task.status in _FINISHED:
                columns["finished"] = now
            rows.change(work.connection, TaskRecord, task.task, **columns)


def _put_attempt(work: UnitOfWork, after: RunState, attempt: Attempt, *, now: float) -> None:
    key = (after.run, attempt.round, attempt.kind.value, attempt.number)
    known = rows.get(work.connection, AttemptRecord, *key)
    closed = now if attempt.status in CLOSED else None
    committed = attempt.status is AttemptStatus.COMMITTED
    if known is None:
        known = AttemptRecord(
            *key,
            status=attempt.status.value,
            reason=None,
            note=None,
            opened=attempt.opened_at,
            aggregating=None,
            closed=None,
            weight=None,
            metrics={},
            model_before=after.model,
            model_after=None,
        )
        rows.add(work.connection, known)
    combining = attempt.status is AttemptStatus.AGGREGATING
    rows.change(
        work.connection,
        AttemptRecord,
        *key,
        status=attempt.status.value,
        reason=None if committed else attempt.reason,
        note=attempt.reason if committed else known.note,
        aggregating=now if combining and known.aggregating is None else known.aggregating,
        closed=closed if known.closed is None else known.closed,
        model_after=after.model if committed and known.model_after is None else known.model_after,
    )


def _store_superseded(
    work: UnitOfWork, before: RunState, after: RunState, notes: list[Note], *, now: float
) -> None:
    """Write how an attempt ended that the step has replaced by another one."""
    current = _tasks(after.attempt)
    for note in notes:
        ended = _ENDED_ATTEMPT.get(note.action)
        if ended is not None:
            attempt = _ended_attempt(before, note, status=ended, now=now)
            if not _same(attempt, after.attempt):
                model = note.details.get("model", after.model)
                _put_attempt(work, replace(after, model=model), attempt, now=now)
        gone = _ENDED_TASK.get(note.action)
        if gone is not None and note.details["task"] not in current:
            rows.change(
                work.connection,
                TaskRecord,
                note.details["task"],
                status=gone.value,
                reason=note.details["reason"],
                finished=now,
            )


def _ended_attempt(before: RunState, note: Note, *, status: AttemptStatus, now: float) -> Attempt:
    """Return the attempt that a note says has ended; only what its row needs is true."""
    details = note.details
    known = before.attempt
    opened_at = now
    if known is not None and _key(known) == (details["kind"], details["round"], details["attempt"]):
        opened_at = known.opened_at
    return Attempt(
        kind=TaskKind(details["kind"]),
        round=details["round"],
        number=details["attempt"],
        status=status,
        opened_at=opened_at,
        reason=details.get("note") or details.get("reason"),
    )


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


def _schedule(work: UnitOfWork, after: RunState, effects: Effects, *, now: float) -> None:
    if after.status in ENDED:
        for kind in (TICK, AGGREGATE):
            run_queries.finish_job(work.connection, after.run, kind)
        return
    for effect in effects:
        if isinstance(effect, TickAt):
            run_queries.schedule(work.connection, after.run, TICK, due=effect.at)
        elif isinstance(effect, Aggregate):
            run_queries.schedule(work.connection, after.run, AGGREGATE, due=now)


def _follow(
    context: Context, work: UnitOfWork, before: RunState, after: RunState, effects: Effects
) -> None:
    """Register what follows the commit: wake-ups, and the removal of files nobody needs."""
    old, new = before.attempt, after.attempt
    if old is not None and (not _same(old, new) or (new is not None and new.status in CLOSED)):
        for task in old.tasks:
            work.after_commit(partial(context.blobs.uploads.discard, task.task))
    topics = [f"site:{site}" for e in effects if isinstance(e, Wake) for site in e.sites]
    if any(isinstance(effect, TickAt | Aggregate) for effect in effects):
        topics.append("jobs")
    for topic in (*topics, f"run:{after.run}", "runs"):
        work.after_commit(partial(context.notifier.notify, topic))


# ---------------------------------------------------------------- small parts


def _key(attempt: Attempt) -> tuple[str, int, int]:
    return attempt.kind.value, attempt.round, attempt.number


def _same(one: Attempt | None, other: Attempt | None) -> bool:
    return one is not None and other is not None and _key(one) == _key(other)


def _tasks(attempt: Attempt | None) -> dict[str, SiteTask]:
    return {} if attempt is None else {task.task: task for task in attempt.tasks}
