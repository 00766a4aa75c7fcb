"""Studies, plans, sites and tokens: /api/v1."""

from typing import Annotated

from fastapi import APIRouter, Body, Response

from fedward.coordinator import views
from fedward.coordinator.api import examples
from fedward.coordinator.api.answers import Once
from fedward.coordinator.api.requests import After, Limit, NewInvite, TokenRequest
from fedward.coordinator.api.state import API_TOKEN, CurrentActor, Service
from fedward.coordinator.api.strict_route import OperatorRoute
from fedward.protocol.documents import Digest, Identifier, Plan, Slug, Study

router = APIRouter(prefix="/api/v1", route_class=OperatorRoute, dependencies=[API_TOKEN])

StudyBody = Annotated[Study, Body(openapi_examples=examples.openapi_example(examples.STUDY))]
PlanBody = Annotated[Plan, Body(openapi_examples=examples.openapi_example(examples.PLAN))]


@router.post("/studies", status_code=201, response_model=views.StudyView, tags=["studies"])
def create_study(study: StudyBody, service: Service, actor: CurrentActor, once: Once) -> Response:
    """Create a study."""
    return once(lambda: service.create_study(actor, study), status=201)


@router.get("/studies", tags=["studies"])
def list_studies(
    service: Service, after: After = None, limit: Limit = 100
) -> views.Page[views.StudyView]:
    """List studies by name."""
    return service.list_studies(after=after, limit=limit)


@router.get("/studies/{study}", tags=["studies"])
def show_study(study: Slug, service: Service) -> views.StudyView:
    """Show one study."""
    return service.show_study(study)


@router.post("/studies/{study}/close", response_model=views.StudyView, tags=["studies"])
def close_study(study: Slug, service: Service, actor: CurrentActor, once: Once) -> Response:
    """Close a study for good and stop its runs."""
    return once(lambda: service.close_study(actor, study))


@router.post("/plans/validate", tags=["plans"])
def validate_plan(plan: PlanBody, service: Service) -> views.PlanCheck:
    """Say everything that would be refused, and the bytes per round; changes nothing."""
    return service.validate_plan(plan)


@router.post("/plans", status_code=201, response_model=views.PlanView, tags=["plans"])
def submit_plan(plan: PlanBody, service: Service, actor: CurrentActor, once: Once) -> Response:
    """Submit a plan; it is kept under its digest."""
    return once(lambda: service.submit_plan(actor, plan), status=201)


@router.get("/plans", tags=["plans"])
def list_plans(
    service: Service, after: After = None, limit: Limit = 100
) -> views.Page[views.PlanView]:
    """List plans by digest."""
    return service.list_plans(after=after, limit=limit)


@router.get("/plans/{digest}", tags=["plans"])
def show_plan(digest: Digest, service: Service) -> views.PlanView:
    """Show one plan."""
    return service.show_plan(digest)


@router.post("/sites/invite", status_code=201, response_model=views.Invite, tags=["sites"])
def invite_site(wanted: NewInvite, service: Service, actor: CurrentActor, once: Once) -> Response:
    """Invite a site. The invite is in this answer only."""
    return once(
        lambda: service.invite_site(
            actor, wanted.site, organisation=wanted.organisation, ttl_s=wanted.ttl_s
        ),
        status=201,
        shown_once=True,
    )


@router.get("/sites", tags=["sites"])
def list_sites(
    service: Service, after: After = None, limit: Limit = 100
) -> views.Page[views.SiteView]:
    """List sites by name."""
    return service.list_sites(after=after, limit=limit)


@router.get("/sites/{site}", tags=["sites"])
def show_site(site: Slug, service: Service) -> views.SiteView:
    """Show one site."""
    return service.show_site(site)


@router.post("/sites/{site}/revoke", response_model=views.SiteView, tags=["sites"])
def revoke_site(site: Slug, service: Service, actor: CurrentActor, once: Once) -> Response:
    """Refuse the site from now on and take its pending tasks away."""
    return once(lambda: service.revoke_site(actor, site))


@router.post("/tokens", status_code=201, response_model=views.NewToken, tags=["tokens"])
def create_token(
    wanted: TokenRequest, service: Service, actor: CurrentActor, once: Once
) -> Response:
    """Make an API token. Its secret is in this answer only."""
    return once(
        lambda: service.create_token(actor, wanted.name, role=wanted.role, ttl_s=wanted.ttl_s),
        status=201,
        shown_once=True,
    )


@router.get("/tokens", tags=["tokens"])
def list_tokens(
    service: Service, after: After = None, limit: Limit = 100
) -> views.Page[views.TokenView]:
    """List tokens by id, without secrets."""
    return service.list_tokens(after=after, limit=limit)


@router.post("/tokens/{token}/revoke", response_model=views.TokenView, tags=["tokens"])
def revoke_token(token: Identifier, service: Service, actor: CurrentActor, once: Once) -> Response:
    """Refuse the token from now on."""
    return once(lambda: service.revoke_token(actor, token))
