"""Studies: why data is used, by which sites, until when."""

from fedward.coordinator import audit, run_steps, views
from fedward.coordinator.actors import SYSTEM, Actor
from fedward.coordinator.context import Context
from fedward.coordinator.errors import Conflict, InvalidInput, NotFound
from fedward.coordinator.paging import checked_limit, make_page
from fedward.coordinator.run_state import Stop
from fedward.coordinator.store import rows, run_queries
from fedward.coordinator.store.records import StudyRecord
from fedward.coordinator.store.unit_of_work import Snapshot, UnitOfWork
from fedward.protocol.canonical import document_digest
from fedward.protocol.documents import Study
from fedward.protocol.records import Subject
from fedward.protocol.timestamps import from_timestamp, to_timestamp


def create(context: Context, actor: Actor, *, study: Study) -> views.StudyView:
    """Create a study; the same one again is answered alike.

    Raises:
        Conflict: another study has this name.
        InvalidInput: it has expired already, or its expiry is no date.
    """
    now = context.clock()
    try:
        expires = from_timestamp(study.expires)
    except ValueError as error:
        raise InvalidInput(
            "invalid-expiry", f"expires: got {study.expires}, expected a date", study=study.study
        ) from error
    with context.store.transaction() as work:
        known = rows.get(work.connection, StudyRecord, study.study)
        if known is not None:
            if known.document == study.model_dump(mode="json"):
                return view(known, now=now)
            raise Conflict(
                "study-exists", f"study {study.study} exists with other content", study=study.study
            )
        if expires <= now:
            raise InvalidInput(
                "invalid-expiry", f"expires: got {study.expires}, which is past", study=study.study
            )
        record = StudyRecord(study.study, study.model_dump(mode="json"), now, expires)
        rows.add(work.connection, record)
        audit.append(
            context,
            work,
            actor=actor,
            action="study.create",
            subject=Subject("study", study.study, study=study.study),
            details={
                "digest": document_digest(study),
                "sites": study.sites,
                "expires": study.expires,
            },
        )
    return view(record, now=now)


def page(context: Context, *, after: str | None, limit: int) -> views.Page[views.StudyView]:
    """Return studies by name."""
    now = context.clock()
    with context.store.reading() as connection:
        found = rows.page(connection, StudyRecord, after=after, limit=checked_limit(limit) + 1)
    return make_page(
        found, limit=limit, key=lambda record: record.study, view=lambda r: view(r, now=now)
    )


def show(context: Context, study: str) -> views.StudyView:
    """Return one study."""
    with context.store.reading() as connection:
        return view(get(connection, study), now=context.clock())


def close(context: Context, actor: Actor, *, study: str) -> views.StudyView:
    """Close a study for good and stop its runs; again changes nothing."""
    with context.store.transaction() as work:
        if get(work.connection, study).closed is None:
            _close(context, work, actor=actor, study=study, cause="operator")
        return view(get(work.connection, study), now=context.clock())


def close_expired(context: Context) -> None:
    """Close the studies whose time is over; they stop as if an operator closed them."""
    now = context.clock()
    with context.store.reading() as connection:
        due = run_queries.studies_over(connection, now=now)
    for study in due:
        with context.store.transaction() as work:
            if get(work.connection, study).closed is None:
                _close(context, work, actor=SYSTEM, study=study, cause="expired")


def get(connection: Snapshot, study: str) -> StudyRecord:
    """Return the record. Raises NotFound."""
    record = rows.get(connection, StudyRecord, study)
    if record is None:
        raise NotFound("unknown-study", f"no study {study}", study=study)
    return record


def view(record: StudyRecord, *, now: float) -> views.StudyView:
    """Return what callers see of a record."""
    status = "expired" if record.expires <= now else "open"
    return views.StudyView(
        study=Study.model_validate(record.document),
        status=status if record.closed is None else "closed",
        created=to_timestamp(record.created),
        closed=None if record.closed is None else to_timestamp(record.closed),
    )


def _close(context: Context, work: UnitOfWork, *, actor: Actor, study: str, cause: str) -> None:
    rows.change(work.connection, StudyRecord, study, closed=context.clock())
    runs = run_queries.open_runs(work.connection, study=study)
    audit.append(
        context,
        work,
        actor=actor,
        action="study.close",
        subject=Subject("study", study, study=study),
        details={"cause": cause, "stopped": [run.run for run in runs]},
    )
    for run in runs:
        run_steps.take(context, work, record=run, event=Stop(f"study-{cause}"), actor=actor)
