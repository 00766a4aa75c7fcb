"""What agents do before they answer: fetch a task and its files, show progress, upload."""

from pathlib import Path
from typing import Any

from fedward.coordinator import models, rounds, run_steps
from fedward.coordinator.actors import agent
from fedward.coordinator.context import Context
from fedward.coordinator.errors import EventRefused, NotFound
from fedward.coordinator.plans import PREPARED, SERVER_ROUND
from fedward.coordinator.run_state import Lease, Progress, RunState, SiteTask
from fedward.coordinator.selection import task_seed
from fedward.coordinator.store import rows, run_queries
from fedward.coordinator.store.records import RunRecord, TaskRecord
from fedward.coordinator.store.unit_of_work import Snapshot
from fedward.protocol.arrays import classify, schema_size_bytes, update_schema
from fedward.protocol.documents import Task, TaskKind, UploadState
from fedward.strategies.registry import build

HEADER_ALLOWANCE_BYTES = 1024**2
PROGRESS_EVERY_S = 10.0
"""How exactly a task's last sign of life is kept."""


def next_task(context: Context, site: str) -> Task | None:
    """Lease the site's next task, None where there is none now."""
    with context.store.reading() as connection:
        if not run_queries.pending_tasks(connection, site):
            return None  # the usual answer of a long poll needs no writer
    with context.store.transaction() as work:
        for candidate in run_queries.pending_tasks(work.connection, site):
            record = run_steps.get(work.connection, candidate.run)
            state = run_steps.load_state(work.connection, record)
            found = _task_of(state, candidate.task)
            if found is None or rounds.refusal(state, Lease(site), now=context.clock()):
                continue
            after = run_steps.take(
                context, work, record=record, event=Lease(site), actor=agent(site)
            )
            leased = _task_of(after, candidate.task)
            if leased is not None:
                return _task(after, leased, record=record)
    return None


def note_progress(context: Context, site: str, *, task: str, fence: int) -> None:
    """Note a sign of life. Raises EventRefused.

    One that follows another closely is checked and not written: it would move no deadline by
    more than a tenth.
    """
    now = context.clock()
    with context.store.reading() as connection:
        row = get(connection, site, task=task)
        state = run_steps.load_state(connection, run_steps.get(connection, row.run))
    shown = _check_progress(state, site, task=task, fence=fence, now=now)
    if now < shown.progress_at + min(PROGRESS_EVERY_S, state.plan.rounds.deadline_s / 10):
        return
    with context.store.transaction() as work:
        record = run_steps.get(work.connection, row.run)
        state = run_steps.load_state(work.connection, record)
        _check_progress(state, site, task=task, fence=fence, now=now)
        run_steps.take(context, work, record=record, event=Progress(site, fence), actor=agent(site))


def upload_state(context: Context, site: str, *, task: str, fence: int) -> UploadState:
    """Return how much of the update has arrived. Raises EventRefused."""
    _require_lease(context, site, task=task, fence=fence)
    return UploadState(task=task, received_bytes=context.blobs.uploads.received(task, fence=fence))


def append_chunk(
    context: Context, site: str, *, task: str, fence: int, offset: int, data: bytes
) -> UploadState:
    """Append a chunk at `offset` and note the progress."""
    limit_bytes = _require_lease(context, site, task=task, fence=fence)
    received = context.blobs.uploads.append(
        task, fence=fence, offset=offset, data=data, limit_bytes=limit_bytes
    )
    note_progress(context, site, task=task, fence=fence)
    return UploadState(task=task, received_bytes=received)


def open_blob(context: Context, site: str, *, digest: str) -> Path:
    """Return a plan, model or bundle of a run that the site takes part in."""
    with context.store.reading() as connection:
        if _run_with(connection, site, digest) is None:
            raise NotFound(
                "unknown-blob", f"no blob {digest} of a run of {site}", digest=digest, site=site
            )
    return context.blobs.path(digest)


def count_sent(context: Context, site: str, *, digest: str, size_bytes: int) -> None:
    """Add to `bytes_down` of the run."""
    with context.store.transaction() as work:
        run = _run_with(work.connection, site, digest)
        if run is not None:
            run_queries.add_traffic(work.connection, run, down=size_bytes)


def get(connection: Snapshot, site: str, *, task: str) -> TaskRecord:
    """Return a task of the site. Raises NotFound, also for another site's task."""
    row = rows.get(connection, TaskRecord, task)
    if row is None or row.site != site:
        raise NotFound("unknown-task", f"no task {task} of {site}", task=task, site=site)
    return row


def _require_lease(context: Context, site: str, *, task: str, fence: int) -> int:
    """Check that the site holds the task; return the largest size of its update in bytes."""
    with context.store.reading() as connection:
        row = get(connection, site, task=task)
        record = run_steps.get(connection, row.run)
        state = run_steps.load_state(connection, record)
        schema = models.schema_from(models.get(connection, record.model))
    _check_progress(state, site, task=task, fence=fence, now=context.clock())
    sent = update_schema(schema, classify(schema, state.plan.arrays))
    names = sum(len(spec.name.encode()) for spec in sent)
    return schema_size_bytes(sent) + 2 * names + 256 * len(sent) + HEADER_ALLOWANCE_BYTES


def _check_progress(state: RunState, site: str, *, task: str, fence: int, now: float) -> SiteTask:
    """Return the task as it is, where the site holds it under this fence. Raises EventRefused."""
    found = _task_of(state, task)
    if found is None:  # the event `Progress` names only the site: it may have another task now
        raise EventRefused("round-closed", f"task {task} is not of the current attempt", task=task)
    rounds.step(state, Progress(site, fence), now=now)
    return found


def _task_of(state: RunState, task: str) -> SiteTask | None:
    tasks = state.attempt.tasks if state.attempt else ()
    return next((t for t in tasks if t.task == task), None)


def _task(state: RunState, leased: SiteTask, *, record: RunRecord) -> Task:
    attempt = state.attempt
    if attempt is None:
        raise ValueError(f"run {state.run} has no attempt, yet a lease")
    app = state.plan.app
    own = {TaskKind.TRAIN: app.train_config, TaskKind.EVALUATE: app.evaluate_config}
    config: dict[str, Any] = {
        **own.get(attempt.kind, {}),
        SERVER_ROUND: attempt.round,
        **build(state.plan.strategy).client_config(),
        **record.prepared,
    }
    return Task(
        task=leased.task,
        kind=attempt.kind,
        run=state.run,
        study=state.plan.study,
        round=attempt.round,
        attempt=attempt.number,
        fence=leased.fence,
        plan=record.plan,
        model=state.model,
        config=config,
        seed=task_seed(
            state.plan.seed, round_number=attempt.round, site=leased.site, kind=attempt.kind
        ),
        lease_s=state.plan.rounds.deadline_s,
    )


def _run_with(connection: Snapshot, site: str, digest: str) -> str | None:
    """Return the newest run, not ended, in which the site has to do with this blob."""
    for run in run_queries.runs_of_site(connection, site):
        record = run_steps.get(connection, run)
        if digest in {record.plan, record.model}:
            return run
        if digest == run_steps.plan_of_run(connection, record).app.bundle:
            return run
    return None


def prepared_config(kind: TaskKind, metrics: dict[str, Any]) -> dict[str, Any]:
    """Return what later tasks' config holds of an attempt's metrics."""
    if kind is not TaskKind.QUERY:
        return {}
    return {f"{PREPARED}{name}": value for name, value in metrics.items()}
