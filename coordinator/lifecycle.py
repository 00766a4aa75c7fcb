"""Start, stop and housekeeping of the coordinator."""

from importlib.metadata import version

from fedward.coordinator import audit, denials, studies
from fedward.coordinator.actors import SYSTEM
from fedward.coordinator.context import Context
from fedward.coordinator.run_state import RunStatus
from fedward.coordinator.store import access_queries, log_queries, run_queries

NONCE_KEPT_S = 7500.0
"""More than twice the largest clock tolerance (3600 s): a request cannot be valid for longer."""
ANSWER_KEPT_S = 7 * 86_400.0


def start(context: Context) -> None:
    """Recover: give leases back, remove files nobody needs, and record the start."""
    present = context.blobs.uploads.present()
    with context.store.transaction() as work:
        run_queries.release_jobs(work.connection)
        before = log_queries.newest(work.connection)
        unfinished = [
            run.run
            for run in run_queries.open_runs(work.connection)
            if run.status != RunStatus.DRAFT
        ]
        audit.append(
            context,
            work,
            actor=SYSTEM,
            action="coordinator.start",
            details={
                "version": version("fedward"),
                "clean": before is None or before.action == "coordinator.stop",
                "unfinished": unfinished,
            },
        )
        wanted = run_queries.tasks_with_files(work.connection)
    context.blobs.clean()
    context.blobs.uploads.remove_others(present, wanted=wanted)


def stop(context: Context) -> None:
    """Record an orderly stop, and before it the denials that were counted."""
    denials.record_repeats(context, older_than_s=0.0)
    with context.store.transaction() as work:
        audit.append(context, work, actor=SYSTEM, action="coordinator.stop")


def keep_house(context: Context) -> None:
    """Close expired studies, record counted denials, forget old nonces and kept answers."""
    studies.close_expired(context)
    denials.record_repeats(context)
    now = context.clock()
    with context.store.transaction() as work:
        access_queries.purge(
            work.connection,
            nonces_before=now - NONCE_KEPT_S,
            answers_before=now - ANSWER_KEPT_S,
        )


def check_ready(context: Context) -> None:
    """Raise Unavailable where the database cannot be read."""
    with context.store.reading() as connection:
        log_queries.size(connection)
