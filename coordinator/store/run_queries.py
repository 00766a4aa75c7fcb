"""Runs, what belongs to them, and studies: the queries beyond one row by key."""

from sqlalchemy import Connection, and_, delete, func, or_, select, update

from fedward.coordinator.run_state import ENDED, PENDING
from fedward.coordinator.store import tables as t
from fedward.coordinator.store.records import (
    AttemptRecord,
    JobRecord,
    RunRecord,
    TaskRecord,
    VersionRecord,
)
from fedward.coordinator.store.rows import add, fetch

_ENDED = sorted(status.value for status in ENDED)
_PENDING = sorted(status.value for status in PENDING)


def runs_newest_first(connection: Connection, *, after: str | None, limit: int) -> list[RunRecord]:
    """Return runs by falling id (ids begin with their time), those before `after`."""
    query = select(t.runs).order_by(t.runs.c.run.desc()).limit(limit)
    return fetch(
        connection, RunRecord, query if after is None else query.where(t.runs.c.run < after)
    )


def open_runs(connection: Connection, *, study: str | None = None) -> list[RunRecord]:
    """Return the runs that have not ended, by id."""
    query = select(t.runs).where(t.runs.c.status.not_in(_ENDED)).order_by(t.runs.c.run)
    return fetch(
        connection, RunRecord, query if study is None else query.where(t.runs.c.study == study)
    )


def attempts_of(connection: Connection, run: str, *, first: int, last: int) -> list[AttemptRecord]:
    """Return the attempts of rounds `first` to `last`, in the order in which they were made."""
    a = t.attempts.c
    query = (
        select(t.attempts)
        .where(a.run == run, a.round >= first, a.round <= last)
        .order_by(a.round, a.opened, a.kind.desc(), a.attempt)
    )
    return fetch(connection, AttemptRecord, query)


def round_numbers(connection: Connection, run: str, *, after: int | None, limit: int) -> list[int]:
    """Return the numbers of the rounds that were begun, those above `after`."""
    a = t.attempts.c
    query = select(a.round).distinct().where(a.run == run).order_by(a.round).limit(limit)
    return list(connection.scalars(query if after is None else query.where(a.round > after)).all())


def newest_committed(connection: Connection, run: str, kind: str) -> AttemptRecord | None:
    """Return the run's newest committed attempt of this kind."""
    a = t.attempts.c
    query = (
        select(t.attempts)
        .where(a.run == run, a.kind == kind, a.status == "committed")
        .order_by(a.round.desc(), a.attempt.desc())
        .limit(1)
    )
    found = fetch(connection, AttemptRecord, query)
    return found[0] if found else None


def tasks_of(connection: Connection, run: str, *, first: int, last: int) -> list[TaskRecord]:
    """Return the tasks of rounds `first` to `last`, by site."""
    c = t.tasks.c
    query = (
        select(t.tasks)
        .where(c.run == run, c.round >= first, c.round <= last)
        .order_by(c.round, c.kind, c.attempt, c.site)
    )
    return fetch(connection, TaskRecord, query)


def tasks_of_attempt(
    connection: Connection, run: str, *, round_number: int, kind: str, attempt: int
) -> list[TaskRecord]:
    """Return one attempt's tasks, by site."""
    c = t.tasks.c
    query = (
        select(t.tasks)
        .where(c.run == run, c.round == round_number, c.kind == kind, c.attempt == attempt)
        .order_by(c.site)
    )
    return fetch(connection, TaskRecord, query)


def pending_tasks(connection: Connection, site: str) -> list[TaskRecord]:
    """Return the site's tasks of running runs: those that it has first, then by the run's age.

    The oldest run first, so that of many runs some end before all are nearly done.
    """
    c = t.tasks.c
    query = (
        select(t.tasks)
        .join(t.runs, t.runs.c.run == c.run)
        .where(c.site == site, c.status.in_(_PENDING), t.runs.c.status == "running")
        .order_by(c.status, t.runs.c.started, c.run, c.offered)  # "leased" < "offered"
    )
    return fetch(connection, TaskRecord, query)


def tasks_with_files(connection: Connection) -> set[str]:
    """Return the tasks whose upload or update is still wanted: their attempt is not closed."""
    c, a = t.tasks.c, t.attempts.c
    query = (
        select(c.task)
        .join(
            t.attempts,
            and_(a.run == c.run, a.round == c.round, a.kind == c.kind, a.attempt == c.attempt),
        )
        .where(
            c.status.in_((*_PENDING, "accepted")), a.status.in_(("open", "closing", "aggregating"))
        )
    )
    return set(connection.scalars(query).all())


def runs_of_site(connection: Connection, site: str) -> list[str]:
    """Return the runs, not ended, that have or had a task for the site, newest first."""
    c = t.tasks.c
    query = (
        select(t.runs.c.run)
        .distinct()
        .join(t.tasks, c.run == t.runs.c.run)
        .where(c.site == site, t.runs.c.status.not_in(_ENDED))
        .order_by(t.runs.c.run.desc())
    )
    return list(connection.scalars(query).all())


# ---------------------------------------------------------------- jobs


def schedule(connection: Connection, run: str, kind: str, *, due: float) -> bool:
    """Make sure that the job runs at `due` or earlier; returns whether that changed anything."""
    j = t.jobs.c
    key = and_(j.run == run, j.kind == kind)
    known = connection.execute(select(j.due).where(key)).scalar_one_or_none()
    if known is None:
        add(connection, JobRecord(run, kind, due, leased_until=None))
    elif due < known:
        connection.execute(update(t.jobs).where(key).values(due=due))
    return known is None or due < known


def claim_due(connection: Connection, *, now: float, until: float, limit: int) -> list[JobRecord]:
    """Lease the jobs that are due and not leased."""
    j = t.jobs.c
    query = (
        select(t.jobs)
        .where(j.due <= now, or_(j.leased_until.is_(None), j.leased_until <= now))
        .order_by(j.due, j.run)
        .limit(limit)
    )
    found = fetch(connection, JobRecord, query)
    for job in found:
        connection.execute(
            update(t.jobs).where(j.run == job.run, j.kind == job.kind).values(leased_until=until)
        )
    return found


def finish_job(connection: Connection, run: str, kind: str) -> None:
    """Take the job away."""
    connection.execute(delete(t.jobs).where(t.jobs.c.run == run, t.jobs.c.kind == kind))


def release_jobs(connection: Connection) -> None:
    """Give all leases back (the process that held them is gone)."""
    connection.execute(update(t.jobs).values(leased_until=None))


def next_due(connection: Connection, *, now: float) -> float | None:
    """Return when the next job that nobody works on is due."""
    j = t.jobs.c
    query = select(func.min(j.due)).where(or_(j.leased_until.is_(None), j.leased_until <= now))
    due: float | None = connection.execute(query).scalar_one()
    return due


# ---------------------------------------------------------------- versions, studies, traffic


def versions_of(
    connection: Connection, run: str, *, after: int | None, limit: int
) -> list[VersionRecord]:
    """Return a run's model versions by round, those above `after`."""
    v = t.model_versions.c
    query = select(t.model_versions).where(v.run == run).order_by(v.round).limit(limit)
    return fetch(
        connection, VersionRecord, query if after is None else query.where(v.round > after)
    )


def origin_of(
    connection: Connection, digest: str, *, run: str | None = None, before_round: int | None = None
) -> VersionRecord | None:
    """Return the version that first made this model, in `run` before that round where given."""
    v = t.model_versions.c
    query = select(t.model_versions).where(v.digest == digest).order_by(v.created, v.run).limit(1)
    if run is not None:
        query = query.where(v.run == run)
    if before_round is not None:
        query = query.where(v.round < before_round)
    found = fetch(connection, VersionRecord, query)
    return found[0] if found else None


def studies_over(connection: Connection, *, now: float) -> list[str]:
    """Return the studies that are not closed although their time is over."""
    s = t.studies.c
    query = select(s.study).where(s.closed.is_(None), s.expires <= now).order_by(s.study)
    return list(connection.scalars(query).all())


def add_traffic(connection: Connection, run: str, *, up: int = 0, down: int = 0) -> None:
    """Add to the bytes that a run has moved."""
    connection.execute(
        update(t.runs)
        .where(t.runs.c.run == run)
        .values(bytes_up=t.runs.c.bytes_up + up, bytes_down=t.runs.c.bytes_down + down)
    )
