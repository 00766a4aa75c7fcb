"""Runs, their rounds and their event stream: /api/v1."""

from typing import Annotated

from fastapi import APIRouter, Header, Path, Query, Response
from fastapi.responses import StreamingResponse

from fedward.coordinator import views
from fedward.coordinator.api.answers import Once
from fedward.coordinator.api.events import event_stream, is_over
from fedward.coordinator.api.requests import After, Limit, NewRun, Number
from fedward.coordinator.api.state import API_TOKEN, CurrentActor, Service, State
from fedward.coordinator.api.strict_route import OperatorRoute
from fedward.protocol.documents import Identifier

router = APIRouter(
    prefix="/api/v1", route_class=OperatorRoute, dependencies=[API_TOKEN], tags=["runs"]
)


@router.post("/runs", status_code=201, response_model=views.RunView)
def create_run(wanted: NewRun, service: Service, actor: CurrentActor, once: Once) -> Response:
    """Draft a run of a plan; it begins with `start`."""
    return once(lambda: service.create_run(actor, wanted.plan), status=201)


@router.get("/runs")
def list_runs(
    service: Service, after: After = None, limit: Limit = 100
) -> views.Page[views.RunView]:
    """List runs, newest first."""
    return service.list_runs(after=after, limit=limit)


@router.get("/runs/{run}")
def show_run(run: Identifier, service: Service) -> views.RunView:
    """Show a run's progress: who took part, who it waits for and why."""
    return service.show_run(run)


@router.post("/runs/{run}/start", response_model=views.RunView)
def start_run(run: Identifier, service: Service, actor: CurrentActor, once: Once) -> Response:
    """Start a draft."""
    return once(lambda: service.start_run(actor, run))


@router.post("/runs/{run}/pause", response_model=views.RunView)
def pause_run(run: Identifier, service: Service, actor: CurrentActor, once: Once) -> Response:
    """Hand out no further task; what is out may come back."""
    return once(lambda: service.pause_run(actor, run))


@router.post("/runs/{run}/resume", response_model=views.RunView)
def resume_run(run: Identifier, service: Service, actor: CurrentActor, once: Once) -> Response:
    """Go on after a pause."""
    return once(lambda: service.resume_run(actor, run))


@router.post("/runs/{run}/stop", response_model=views.RunView)
def stop_run(run: Identifier, service: Service, actor: CurrentActor, once: Once) -> Response:
    """End the run for good."""
    return once(lambda: service.stop_run(actor, run))


@router.get("/runs/{run}/rounds")
def list_rounds(
    run: Identifier,
    service: Service,
    after: Annotated[Number | None, Query(ge=0, description="rounds after this number")] = None,
    limit: Limit = 100,
) -> views.Page[views.RoundView]:
    """List the rounds in order, without their tasks."""
    return service.list_rounds(run, after=after, limit=limit)


@router.get("/runs/{run}/rounds/{number}")
def show_round(
    run: Identifier, number: Annotated[Number, Path(ge=0)], service: Service
) -> views.RoundView:
    """Show one round with its tasks."""
    return service.show_round(run, number)


@router.get(
    "/runs/{run}/events",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}}, 204: {"description": "all was sent"}},
)
async def run_events(
    run: Identifier,
    state: State,
    last_event_id: Annotated[Number, Header(ge=0, description="go on after this event")] = 0,
) -> Response:
    """Stream the run's audit records as they are written (server-sent events)."""
    if await is_over(state, run, last_event_id) and last_event_id:
        return Response(status_code=204)
    return StreamingResponse(
        event_stream(state, run, last_event_id),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )
