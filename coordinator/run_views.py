"""What operators see of runs and rounds: progress, who took part, who is waited for and why."""

from collections import defaultdict

from fedward.coordinator import run_steps, views
from fedward.coordinator.context import Context
from fedward.coordinator.errors import NotFound
from fedward.coordinator.paging import checked_limit, make_page
from fedward.coordinator.run_state import (
    ENDED,
    PENDING,
    AttemptStatus,
    RunState,
    RunStatus,
    TaskStatus,
)
from fedward.coordinator.store import run_queries
from fedward.coordinator.store.records import AttemptRecord, RunRecord, TaskRecord
from fedward.coordinator.store.unit_of_work import Snapshot
from fedward.protocol.timestamps import to_timestamp


def show(context: Context, run: str) -> views.RunView:
    """Return a run's progress."""
    with context.store.reading() as connection:
        return _view(connection, run_steps.get(connection, run))


def page(context: Context, *, after: str | None, limit: int) -> views.Page[views.RunView]:
    """Return runs, newest first."""
    with context.store.reading() as connection:
        found = run_queries.runs_newest_first(
            connection, after=after, limit=checked_limit(limit) + 1
        )
        return make_page(
            found,
            limit=limit,
            key=lambda record: record.run,
            view=lambda record: _view(connection, record),
        )


def rounds(
    context: Context, run: str, *, after: int | None, limit: int
) -> views.Page[views.RoundView]:
    """Return rounds in order, without tasks."""
    with context.store.reading() as connection:
        run_steps.get(connection, run)
        numbers = run_queries.round_numbers(
            connection, run, after=after, limit=checked_limit(limit) + 1
        )
        shown = numbers[:limit]
        found = _round_views(connection, run, shown)
    bare = [
        round_view.model_copy(
            update={"attempts": [a.model_copy(update={"tasks": []}) for a in round_view.attempts]}
        )
        for round_view in found
    ]
    return views.Page(items=bare, next=str(shown[-1]) if len(numbers) > limit else None)


def show_round(context: Context, run: str, *, number: int) -> views.RoundView:
    """Return one round with its tasks."""
    with context.store.reading() as connection:
        run_steps.get(connection, run)
        found = _round_views(connection, run, [number])[0]
    if not found.attempts:
        raise NotFound("unknown-round", f"run {run} has no round {number} so far", run=run)
    return found


# ---------------------------------------------------------------- runs


def _view(connection: Snapshot, record: RunRecord) -> views.RunView:
    state = run_steps.load_state(connection, record)
    attempt = state.attempt
    took_part = sum(t.status is TaskStatus.ACCEPTED for t in attempt.tasks) if attempt else 0
    invited = len(attempt.tasks) if attempt else 0
    measured = run_queries.newest_committed(connection, record.run, "evaluate")
    if measured is None:
        measured = run_queries.newest_committed(connection, record.run, "train")
    return views.RunView(
        run=record.run,
        name=state.plan.name,
        plan=record.plan,
        study=record.study,
        status=record.status,
        reason=state.reason,
        created=to_timestamp(record.created),
        started=_time(record.started),
        ended=_time(record.ended),
        sites=list(state.sites),
        available=list(state.available),
        round=record.round,
        rounds=state.plan.rounds.count,
        attempt=attempt.number if attempt else None,
        phase=f"{attempt.kind.value} {attempt.status.value}" if attempt else None,
        took_part=took_part,
        invited=invited,
        participation=_participation(took_part, invited),
        waiting_for=_waiting_for(state, record),
        model=state.model,
        metrics=measured.metrics if measured else {},
        metrics_round=measured.round if measured else None,
        bytes_up=record.bytes_up,
        bytes_down=record.bytes_down,
    )


def _waiting_for(state: RunState, record: RunRecord) -> list[views.WaitingFor]:
    attempt = state.attempt
    if state.status in ENDED or state.status is RunStatus.DRAFT:
        return []
    if attempt is None or attempt.status is AttemptStatus.SELECTING:
        since = attempt.opened_at if attempt else record.started or record.created
        return [
            views.WaitingFor(site=site, since=to_timestamp(since), why="not-enrolled")
            for site in state.sites
            if site not in state.available
        ]
    return [
        views.WaitingFor(
            site=task.site,
            since=to_timestamp(task.progress_at),
            why="working" if task.status is TaskStatus.LEASED else "not-fetched",
        )
        for task in attempt.tasks
        if task.status in PENDING
    ]


# ---------------------------------------------------------------- rounds


def _round_views(connection: Snapshot, run: str, numbers: list[int]) -> list[views.RoundView]:
    if not numbers:
        return []
    attempts = run_queries.attempts_of(connection, run, first=numbers[0], last=numbers[-1])
    tasks: dict[tuple[int, str, int], list[TaskRecord]] = defaultdict(list)
    for task in run_queries.tasks_of(connection, run, first=numbers[0], last=numbers[-1]):
        tasks[task.round, task.kind, task.attempt].append(task)
    return [
        views.RoundView(
            run=run,
            round=number,
            attempts=[
                _attempt_view(a, tasks[a.round, a.kind, a.attempt])
                for a in attempts
                if a.round == number
            ],
        )
        for number in numbers
    ]


def _attempt_view(record: AttemptRecord, tasks: list[TaskRecord]) -> views.AttemptView:
    took_part = [task.site for task in tasks if task.status == TaskStatus.ACCEPTED]
    closed, combining = record.closed, record.aggregating
    return views.AttemptView(
        kind=record.kind,
        attempt=record.attempt,
        status=record.status,
        reason=record.reason,
        note=record.note,
        opened=to_timestamp(record.opened),
        closed=_time(closed),
        duration_s=None if closed is None else closed - record.opened,
        aggregation_s=None if closed is None or combining is None else closed - combining,
        cohort=[task.site for task in tasks],
        took_part=took_part,
        participation=_participation(len(took_part), len(tasks)),
        refused=_reasons(tasks, TaskStatus.REFUSED),
        late=_reasons(tasks, TaskStatus.EXPIRED),
        weight=record.weight,
        metrics=record.metrics,
        model_before=record.model_before,
        model_after=record.model_after,
        bytes_up=sum(task.update_bytes for task in tasks),
        tasks=[_task_view(task) for task in tasks],
    )


def _task_view(record: TaskRecord) -> views.TaskView:
    return views.TaskView(
        task=record.task,
        site=record.site,
        status=record.status,
        reason=record.reason,
        detail=record.detail,
        fence=record.fence,
        leased=_time(record.leased),
        finished=_time(record.finished),
        duration_s=record.duration_s,
        num_examples=record.num_examples,
        weight=record.weight,
        metrics=record.metrics,
        update=record.update_digest,
        update_bytes=record.update_bytes,
    )


def _reasons(tasks: list[TaskRecord], status: TaskStatus) -> list[views.SiteReason]:
    return [
        views.SiteReason(site=task.site, reason=task.reason or "")
        for task in tasks
        if task.status == status
    ]


def _participation(took_part: int, invited: int) -> str:
    return f"{took_part} of {invited} took part" if invited else ""


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else to_timestamp(seconds)
