"""Combines an attempt's accepted answers: pure arithmetic first, then files and one transaction.

It may be interrupted anywhere and done again: the same answers give the same bits, the new
model is a blob before any row names it, and the transaction that ends the attempt refuses to
do so twice. Updates are added by site name, one mapped file at a time.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedward.coordinator import models, run_steps
from fedward.coordinator.actors import SYSTEM
from fedward.coordinator.blobs import map_file
from fedward.coordinator.context import Context
from fedward.coordinator.run_state import (
    Aggregated,
    AggregationFailed,
    Attempt,
    AttemptStatus,
    RunState,
    TaskStatus,
)
from fedward.coordinator.store import rows, run_queries
from fedward.coordinator.store.records import (
    AttemptRecord,
    ModelRecord,
    RunRecord,
    TaskRecord,
    VersionRecord,
)
from fedward.coordinator.store.unit_of_work import Snapshot, UnitOfWork
from fedward.coordinator.tasks import prepared_config
from fedward.protocol.arrays import (
    Arrays,
    classify,
    decode,
    encode,
    encoded_size,
    require_finite,
    schema_of,
)
from fedward.protocol.documents import MetricValue, Plan, TaskKind
from fedward.protocol.errors import NonFinite, ProtocolError
from fedward.strategies.base import Aggregate, ServerState
from fedward.strategies.combiner import Combiner
from fedward.strategies.errors import NoData, StrategyError
from fedward.strategies.metrics import NUM_EXAMPLES, average_metrics
from fedward.strategies.registry import build

NO_DATA = "no-data"


# ---------------------------------------------------------------- pure


def combine(
    plan: Plan, state: ServerState, updates: Iterable[tuple[float, Arrays]]
) -> tuple[ServerState, Aggregate]:
    """Return the state after an attempt, and the aggregate.

    Args:
        state: before the attempt; not modified.
        updates: weight and arrays of each accepted update, in the order of site names.

    Raises:
        NoData: the updates weigh nothing.
        StrategyError: the strategy cannot apply them (`Overflow`).
    """
    schema = schema_of(state.model)
    combiner = Combiner(schema, classify(schema, plan.arrays), counted=plan.arrays.counted)
    for weight, update in updates:
        combiner.add(update, weight=weight)
    aggregate = combiner.result()
    return build(plan.strategy).apply(state, aggregate), aggregate


def combine_metrics(
    answers: Iterable[tuple[float, float | None, Mapping[str, MetricValue]]],
) -> dict[str, MetricValue]:
    """Return the mean metrics of answers (weight, num-examples, metrics), weighted.

    `num-examples` is what passed the gate, never what the metrics say beside it.
    """
    replies = []
    for weight, num_examples, metrics in answers:
        stated = {} if num_examples is None else {NUM_EXAMPLES: _whole(num_examples)}
        other = {name: value for name, value in metrics.items() if name != NUM_EXAMPLES}
        replies.append((weight, {**other, **stated}))
    return average_metrics(replies)


def _whole(number: float) -> int | float:
    return int(number) if float(number).is_integer() and abs(number) < 2**53 else number


# ---------------------------------------------------------------- files and rows


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What the transaction stores. `model` is None where the model stays as it is."""

    event: Aggregated | AggregationFailed
    metrics: dict[str, MetricValue] = field(default_factory=dict)
    weight: float | None = None
    model: ModelRecord | None = None
    slots: str | None = None
    updates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Job:
    record: RunRecord
    state: RunState
    attempt: Attempt
    answers: tuple[TaskRecord, ...]


def aggregate(context: Context, run: str) -> None:
    """End the run's attempt if it is aggregating; else only take the job away."""
    job = _load(context, run)
    if job is None:
        with context.store.transaction() as work:
            if not _is_aggregating(_current(work.connection, run)):
                run_queries.finish_job(work.connection, run, run_steps.AGGREGATE)
        return
    _end(context, job, _compute(context, job))


def give_up(context: Context, run: str) -> None:
    """End the run's attempt without a result: a fault of ours kept it from being combined."""
    job = _load(context, run)
    if job is not None:
        _end(context, job, _Outcome(AggregationFailed("internal-error: see the server's log")))


def _end(context: Context, job: _Job, outcome: _Outcome) -> None:
    """Store an outcome and take the job away, unless the run no longer waits for it.

    The job of the next attempt must stay: without it nobody would combine that one.
    """
    run = job.state.run
    with context.store.transaction() as work:
        current = _current(work.connection, run)
        is_waiting = _is_waiting(current, job.attempt)
        if is_waiting or not _is_aggregating(current):
            run_queries.finish_job(work.connection, run, run_steps.AGGREGATE)
        if is_waiting:
            _store(context, work, job, outcome)


def _current(connection: Snapshot, run: str) -> Attempt | None:
    return run_steps.load_state(connection, run_steps.get(connection, run)).attempt


def _is_aggregating(attempt: Attempt | None) -> bool:
    return attempt is not None and attempt.status is AttemptStatus.AGGREGATING


def _load(context: Context, run: str) -> _Job | None:
    with context.store.reading() as connection:
        record = run_steps.get(connection, run)
        state = run_steps.load_state(connection, record)
        attempt = state.attempt
        if attempt is None or attempt.status is not AttemptStatus.AGGREGATING:
            return None
        found = run_queries.tasks_of_attempt(
            connection,
            run,
            round_number=attempt.round,
            kind=attempt.kind.value,
            attempt=attempt.number,
        )
    answers = tuple(task for task in found if task.status == TaskStatus.ACCEPTED)
    return _Job(record, state, attempt, answers)


def _is_waiting(current: Attempt | None, combined: Attempt) -> bool:
    """Return whether the run still waits for this outcome; its timers may have moved."""
    return current is not None and (
        current.kind,
        current.round,
        current.number,
        current.status,
    ) == (combined.kind, combined.round, combined.number, AttemptStatus.AGGREGATING)


def _compute(context: Context, job: _Job) -> _Outcome:
    weights = [task.weight or 0.0 for task in job.answers]
    metrics = combine_metrics(
        (weight, task.num_examples, task.metrics)
        for weight, task in zip(weights, job.answers, strict=True)
    )
    if job.attempt.kind is not TaskKind.TRAIN:
        note = None if sum(weights) > 0 else NO_DATA
        return _Outcome(Aggregated(job.state.model, note), metrics, sum(weights))
    try:
        after, combined = combine(
            job.state.plan, _server_state(context, job), _updates(context, job)
        )
        require_finite(after.model)
    except NoData:
        return _Outcome(Aggregated(job.state.model, NO_DATA), metrics, 0.0)
    except (StrategyError, NonFinite) as error:
        return _Outcome(AggregationFailed(f"{error.reason}: the updates cannot be combined"))
    except (FileNotFoundError, ProtocolError):
        # Lost or damaged since the gate: the attempt is made again, the model stays as it is.
        return _Outcome(AggregationFailed("update-lost: an accepted update cannot be read"))
    schema = schema_of(after.model)
    digest = context.blobs.put(encode(after.model))
    slots = context.blobs.put(encode(after.slots)) if after.slots else None
    return _Outcome(
        Aggregated(digest),
        metrics,
        combined.weight,
        models.record_of(
            digest,
            schema,
            size_bytes=encoded_size(schema),
            now=context.clock(),
        ),
        slots,
        tuple(task.update_digest or "" for task in job.answers),
    )


def _server_state(context: Context, job: _Job) -> ServerState:
    model = decode(map_file(context.blobs.path(job.state.model)))
    if job.record.server_version == 0:
        return build(job.state.plan.strategy).init(model)
    slots = job.record.slots
    return ServerState(
        job.record.server_version,
        model,
        decode(map_file(context.blobs.path(slots))) if slots else {},
    )


def _updates(context: Context, job: _Job) -> Iterable[tuple[float, dict[str, Any]]]:
    for task in job.answers:
        path = context.blobs.uploads.update_path(task.task, task.fence, task.update_digest or "")
        yield task.weight or 0.0, decode(map_file(path))


def _store(context: Context, work: UnitOfWork, job: _Job, outcome: _Outcome) -> None:
    run, attempt, model = job.state.run, job.attempt, outcome.model
    if model is not None:
        if rows.get(work.connection, ModelRecord, model.digest) is None:
            rows.add(work.connection, model)
        if model.digest != job.state.model:
            rows.add(
                work.connection,
                VersionRecord(run, attempt.round, model.digest, job.state.model, model.created),
            )
        rows.change(
            work.connection,
            RunRecord,
            run,
            slots=outcome.slots,
            server_version=job.record.server_version + 1,
        )
    if isinstance(outcome.event, Aggregated):
        rows.change(
            work.connection,
            RunRecord,
            run,
            prepared={**job.record.prepared, **prepared_config(attempt.kind, outcome.metrics)},
        )
        rows.change(
            work.connection,
            AttemptRecord,
            run,
            attempt.round,
            attempt.kind.value,
            attempt.number,
            metrics=outcome.metrics,
            weight=outcome.weight,
        )
    run_steps.take(
        context,
        work,
        record=run_steps.get(work.connection, run),
        event=outcome.event,
        actor=SYSTEM,
        details={
            "attempt.commit": {
                "weight": None if outcome.weight is None else repr(outcome.weight),
                "updates": list(outcome.updates),
            }
        },
    )
