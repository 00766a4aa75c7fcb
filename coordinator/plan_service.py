"""Plans: checked against what is stored, kept under their digest."""

from fedward.coordinator import audit, models, studies, views
from fedward.coordinator.actors import Actor
from fedward.coordinator.context import Context
from fedward.coordinator.errors import NotFound, PlanRefused
from fedward.coordinator.paging import checked_limit, make_page
from fedward.coordinator.plans import PlanFacts, check_plan
from fedward.coordinator.store import access_queries, rows
from fedward.coordinator.store.records import AppRecord, ModelRecord, PlanRecord, StudyRecord
from fedward.protocol.canonical import canonical_bytes, sha256_digest
from fedward.protocol.documents import Plan, Study
from fedward.protocol.records import Subject
from fedward.protocol.timestamps import to_timestamp


def validate(context: Context, plan: Plan) -> views.PlanCheck:
    """Return all that would be refused; changes nothing."""
    with context.store.reading() as connection:
        study = rows.get(connection, StudyRecord, plan.study)
        app = rows.get(connection, AppRecord, plan.app.bundle) if plan.app.bundle else None
        model = rows.get(connection, ModelRecord, plan.model)
        enrolled = access_queries.enrolled_sites(connection)
    facts = PlanFacts(
        study=None if study is None else Study.model_validate(study.document),
        study_status=None if study is None else studies.view(study, now=context.clock()).status,
        app_config=None if app is None else app.config,
        schema=None if model is None else models.schema_from(model),
        model_bytes=None if model is None else model.size_bytes,
        sites_enrolled=frozenset(enrolled),
    )
    return check_plan(plan, facts)


def submit(context: Context, actor: Actor, *, plan: Plan) -> views.PlanView:
    """Keep a plan under its digest; the same plan again is answered alike."""
    data = canonical_bytes(plan)
    digest = sha256_digest(data)
    if not context.blobs.exists(digest):
        _require_accepted(context, plan)
        context.blobs.put([data])
    with context.store.transaction() as work:
        known = rows.get(work.connection, PlanRecord, digest)
        if known is not None:
            return _view(known)
        _require_accepted(context, plan)
        record = PlanRecord(
            digest, plan.study, plan.model_dump(mode="json"), context.clock(), actor.id
        )
        rows.add(work.connection, record)
        audit.append(
            context,
            work,
            actor=actor,
            action="plan.submit",
            subject=Subject("plan", digest, digest=digest, study=plan.study),
            details={
                "app": plan.app.recipe or plan.app.bundle,
                "model": plan.model,
                "strategy": plan.strategy.name,
            },
        )
    return _view(record)


def _require_accepted(context: Context, plan: Plan) -> None:
    check = validate(context, plan)
    if check.reasons:
        raise PlanRefused(check.reasons)


def page(context: Context, *, after: str | None, limit: int) -> views.Page[views.PlanView]:
    """Return plans by digest."""
    with context.store.reading() as connection:
        found = rows.page(connection, PlanRecord, after=after, limit=checked_limit(limit) + 1)
    return make_page(found, limit=limit, key=lambda record: record.digest, view=_view)


def show(context: Context, digest: str) -> views.PlanView:
    """Return one plan."""
    with context.store.reading() as connection:
        record = rows.get(connection, PlanRecord, digest)
    if record is None:
        raise NotFound("unknown-plan", f"no plan {digest}", plan=digest)
    return _view(record)


def _view(record: PlanRecord) -> views.PlanView:
    return views.PlanView(
        digest=record.digest,
        plan=Plan.model_validate(record.document),
        created=to_timestamp(record.created),
        created_by=record.created_by,
    )
