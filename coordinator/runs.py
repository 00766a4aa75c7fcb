"""What operators do with runs: create, start, pause, resume, stop."""

from fedward.coordinator import audit, plan_service, rounds, run_steps, run_views, studies, views
from fedward.coordinator.actors import Actor
from fedward.coordinator.context import Context
from fedward.coordinator.errors import PlanRefused
from fedward.coordinator.identifiers import new_id
from fedward.coordinator.run_state import Event, Pause, Resume, SitesChanged, Start, Stop
from fedward.coordinator.store import access_queries, rows, run_queries
from fedward.coordinator.store.records import RunRecord
from fedward.coordinator.store.unit_of_work import UnitOfWork
from fedward.protocol.documents import Study
from fedward.protocol.records import Subject


def create(context: Context, actor: Actor, *, plan_digest: str) -> views.RunView:
    """Draft a run of the plan with this digest.

    Raises:
        PlanRefused: the plan could not be submitted today.
    """
    now = context.clock()
    with context.store.transaction() as work:
        plan = run_steps.plan_of(work.connection, plan_digest)
        check = plan_service.validate(context, plan)
        if check.reasons:
            raise PlanRefused(check.reasons, plan=plan_digest)
        run = new_id("run", now=now, entropy=context.token_bytes(10))
        study = Study.model_validate(studies.get(work.connection, plan.study).document)
        members = tuple(plan.sites or study.sites)
        enrolled = access_queries.enrolled_sites(work.connection)
        state = rounds.new_run(
            run, plan, sites=members, available=tuple(s for s in members if s in enrolled)
        )
        rows.add(
            work.connection,
            RunRecord(
                run=run,
                plan=plan_digest,
                study=plan.study,
                status=state.status.value,
                round=0,
                state=run_steps.dump_state(state),
                model=state.model,
                server_version=0,
                slots=None,
                prepared={},
                created=now,
                started=None,
                ended=None,
                bytes_up=0,
                bytes_down=0,
            ),
        )
        audit.append(
            context,
            work,
            actor=actor,
            action="run.create",
            subject=Subject("run", run, digest=plan_digest, study=plan.study, run=run),
            details={"plan": plan_digest, "sites": list(state.sites)},
        )
        return run_views.show(context, run)


def start(context: Context, actor: Actor, *, run: str) -> views.RunView:
    """Start a draft. Raises EventRefused."""
    return _step(context, actor, run=run, event=Start())


def pause(context: Context, actor: Actor, *, run: str) -> views.RunView:
    """Hand out no further task. Raises EventRefused."""
    return _step(context, actor, run=run, event=Pause())


def resume(context: Context, actor: Actor, *, run: str) -> views.RunView:
    """Go on after a pause. Raises EventRefused."""
    return _step(context, actor, run=run, event=Resume())


def stop(context: Context, actor: Actor, *, run: str) -> views.RunView:
    """End the run for good. Raises EventRefused."""
    return _step(context, actor, run=run, event=Stop("stopped-by-operator"))


def sites_changed(context: Context, work: UnitOfWork, *, site: str, actor: Actor) -> None:
    """Tell the runs of a site that it was enrolled or revoked."""
    enrolled = access_queries.enrolled_sites(work.connection)
    for record in run_queries.open_runs(work.connection):
        if site in record.state["sites"]:
            available = tuple(s for s in record.state["sites"] if s in enrolled)
            run_steps.take(context, work, record=record, event=SitesChanged(available), actor=actor)


def _step(context: Context, actor: Actor, *, run: str, event: Event) -> views.RunView:
    with context.store.transaction() as work:
        record = run_steps.get(work.connection, run)
        run_steps.take(context, work, record=record, event=event, actor=actor)
        return run_views.show(context, run)
