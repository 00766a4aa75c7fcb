"""Answers of sites: checked at the gate, recorded, and always answered with a receipt.

The gate reads the whole update, so it runs outside the transaction; the transaction then
checks again whether the answer still fits. The same answer again gets the stored receipt.
"""

from dataclasses import dataclass
from typing import Any

from fedward.coordinator import denials, models, rounds, run_steps, tasks
from fedward.coordinator.actors import agent
from fedward.coordinator.blobs import map_file
from fedward.coordinator.context import Context, Denial
from fedward.coordinator.errors import EventRefused, UpdateRefused
from fedward.coordinator.run_state import Accept, Refuse, RunState
from fedward.coordinator.store import rows, run_queries
from fedward.coordinator.store.records import ModelRecord, TaskRecord
from fedward.protocol.arrays import classify, decode, update_schema
from fedward.protocol.canonical import document_digest
from fedward.protocol.documents import NextStep, ResultReceipt, TaskKind, TaskResult
from fedward.protocol.errors import InvalidArrays, InvalidDocument
from fedward.strategies.errors import WeightRefused
from fedward.strategies.gate import check_update, resolve_weight

_DETAIL_CHARACTERS = 1000


@dataclass(frozen=True, slots=True)
class _Verdict:
    """The gate's decision; `reason` is None where the answer may be taken."""

    weight: float | None = None
    reason: str | None = None
    detail: str | None = None
    update_bytes: int = 0


def submit(context: Context, site: str, *, task: str, result: TaskResult) -> ResultReceipt:
    """Check and record a result; the same result again gets the same receipt."""
    try:
        digest = document_digest(result)
    except InvalidDocument as error:
        raise UpdateRefused("invalid-result", f"result of {task}: {error}", task=task) from error
    with context.store.reading() as connection:
        row = tasks.get(connection, site, task=task)
        record = run_steps.get(connection, row.run)
        state = run_steps.load_state(connection, record)
        model = models.get(connection, record.model)
    repeated = _stored(row, digest)
    if repeated is not None:
        return repeated
    late = rounds.refusal(state, Accept(task, result.fence), now=context.clock())
    if late is not None:
        return _too_late(context, row, late)
    missing = _missing_bytes(context, task, result)
    if missing is not None:
        return missing
    verdict = _judge(context, row, result, state=state, model=model)
    if verdict.reason == "upload-damaged":  # it was dropped: the site sends it again
        return _receipt(task, reason=verdict.reason, detail=verdict.detail, step=NextStep.UPLOAD)
    return _record(context, row, result, digest=digest, verdict=verdict)


# ---------------------------------------------------------------- the gate


def _missing_bytes(context: Context, task: str, result: TaskResult) -> ResultReceipt | None:
    """Return the answer to a result whose upload is not complete."""
    if result.update is None:
        return None
    received = context.blobs.uploads.received(task, fence=result.fence)
    if received >= result.update.size_bytes:
        return None
    return _receipt(
        task,
        reason="upload-incomplete",
        detail=f"upload of {task}: got {received} bytes, expected {result.update.size_bytes}",
        step=NextStep.UPLOAD,
    )


def _judge(
    context: Context, row: TaskRecord, result: TaskResult, *, state: RunState, model: ModelRecord
) -> _Verdict:
    if result.model != state.model:
        return _Verdict(
            reason="model-mismatch", detail=f"model: got {result.model}, expected {state.model}"
        )
    if result.failure is not None:
        return _Verdict(reason=result.failure.value)
    trains = row.kind == TaskKind.TRAIN
    if trains and result.update is None:
        return _Verdict(reason="update-missing", detail="got no update, expected one")
    if not trains and result.update is not None:
        return _Verdict(reason="update-unexpected", detail=f"got an update for {row.kind}")
    size = result.update.size_bytes if result.update else 0
    rules = state.plan.weights
    if not trains:  # metrics are weighted by examples, however updates are
        rules = rules.model_copy(update={"by": "num-examples"})
    try:
        if result.update is not None:
            path = context.blobs.uploads.finish(
                row.task, fence=result.fence, digest=result.update.digest
            )
            schema = models.schema_from(model)
            expected = update_schema(schema, classify(schema, state.plan.arrays))
            check_update(decode(map_file(path)), expected)
        return _Verdict(weight=resolve_weight(result.num_examples, rules), update_bytes=size)
    except (InvalidArrays, WeightRefused) as error:
        return _Verdict(reason=error.reason, detail=str(error), update_bytes=size)
    except UpdateRefused as error:
        return _Verdict(reason=error.name, detail=error.detail)
    except FileNotFoundError:  # taken over by a newer lease of the same task meanwhile
        return _Verdict(reason="upload-damaged", detail=f"upload of {row.task}: gone")


# ---------------------------------------------------------------- on record


def _record(
    context: Context, row: TaskRecord, result: TaskResult, *, digest: str, verdict: _Verdict
) -> ResultReceipt:
    task, reason = row.task, verdict.reason
    receipt = _receipt(task, reason=reason, detail=verdict.detail)
    event = Accept(task, result.fence) if reason is None else Refuse(task, result.fence, reason)
    with context.store.transaction() as work:
        current = tasks.get(work.connection, row.site, task=task)
        repeated = _stored(current, digest)  # two copies of one answer at the same time
        if repeated is not None:
            return repeated
        record = run_steps.get(work.connection, row.run)
        state = run_steps.load_state(work.connection, record)
        late = rounds.refusal(state, event, now=context.clock())
        if late is None:
            rows.change(
                work.connection, TaskRecord, task, **_columns(result, verdict, receipt, digest)
            )
            if verdict.update_bytes:
                run_queries.add_traffic(work.connection, row.run, up=verdict.update_bytes)
            run_steps.take(
                context,
                work,
                record=record,
                event=event,
                actor=agent(row.site),
                details=_details(result, verdict),
            )
            if reason is not None:
                work.after_commit(lambda: context.blobs.uploads.discard(task))
    return receipt if late is None else _too_late(context, row, late)


def _columns(
    result: TaskResult, verdict: _Verdict, receipt: ResultReceipt, digest: str
) -> dict[str, Any]:
    return {
        "result_digest": digest,
        "receipt": receipt.model_dump(mode="json"),
        "detail": verdict.detail,
        "num_examples": result.num_examples,
        "weight": verdict.weight,
        "metrics": result.metrics or {},
        "duration_s": result.duration_s,
        "update_digest": result.update.digest if result.update else None,
        "update_bytes": verdict.update_bytes,
    }


def _details(result: TaskResult, verdict: _Verdict) -> run_steps.Details:
    update = result.update.digest if result.update else None
    examples = None if result.num_examples is None else repr(result.num_examples)
    return {
        "task.accept": {
            "num_examples": examples,
            "update": update,
            "size_bytes": verdict.update_bytes,
        },
        "task.refuse": {"update": update},
    }


def _too_late(context: Context, row: TaskRecord, error: EventRefused) -> ResultReceipt:
    """Record an answer that changes nothing (`stale-fence`, `round-closed`, `duplicate` …)."""
    with context.store.reading() as connection:
        study = run_steps.get(connection, row.run).study
    actor, reason = agent(row.site), error.name
    denials.record(
        context, Denial(actor, "task.submit", reason, row.task, study, row.run, row.round)
    )
    return _receipt(row.task, reason=error.name, detail=error.detail)


def _stored(row: TaskRecord, digest: str) -> ResultReceipt | None:
    if row.receipt is None or row.result_digest != digest:
        return None
    return ResultReceipt.model_validate(row.receipt)


def _receipt(
    task: str, *, reason: str | None, detail: str | None = None, step: NextStep = NextStep.POLL
) -> ResultReceipt:
    return ResultReceipt(
        task=task,
        accepted=reason is None,
        reason=reason,
        detail=detail[:_DETAIL_CHARACTERS] if detail else None,
        next=step,
    )
