"""Apps and models, whose bodies are files: /api/v1.

They take no Idempotency-Key: content decides, the same file again gets the same answer.
"""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import FileResponse
from starlette.concurrency import run_in_threadpool

from fedward.coordinator import views
from fedward.coordinator.api.blob_ranges import parse_range
from fedward.coordinator.api.bodies import read_limited, spooled
from fedward.coordinator.api.requests import After, Limit
from fedward.coordinator.api.state import API_TOKEN, CurrentActor, Service, State
from fedward.coordinator.api.strict_route import OperatorRoute
from fedward.protocol.documents import Digest, Identifier

router = APIRouter(prefix="/api/v1", route_class=OperatorRoute, dependencies=[API_TOKEN])

_APP_TIMEOUT_S = 600.0
_BINARY = {"schema": {"type": "string", "format": "binary"}}


def _takes(media_type: str, what: str) -> dict[str, object]:
    return {
        "requestBody": {"required": True, "description": what, "content": {media_type: _BINARY}}
    }


@router.post(
    "/apps", status_code=201, tags=["apps"],
    openapi_extra=_takes("application/zip", "a zip of a Flower app directory"),
)  # fmt: skip
async def add_app(
    request: Request, service: Service, actor: CurrentActor, state: State
) -> views.AppView:
    """Upload an app. The body is the zip file itself."""
    data = await read_limited(
        request.scope, request.receive,
        limit=state.settings.max_app_bytes, timeout_s=_APP_TIMEOUT_S,
    )  # fmt: skip
    return await run_in_threadpool(service.add_app, actor, data)


@router.get("/apps", tags=["apps"])
def list_apps(
    service: Service, after: After = None, limit: Limit = 100
) -> views.Page[views.AppView]:
    """List apps by digest."""
    return service.list_apps(after=after, limit=limit)


@router.get("/apps/{digest}", tags=["apps"])
def show_app(digest: Digest, service: Service) -> views.AppView:
    """Show one app."""
    return service.show_app(digest)


@router.post(
    "/models", status_code=201, tags=["models"],
    openapi_extra=_takes("application/octet-stream", "a safetensors file"),
)  # fmt: skip
async def add_model(
    request: Request, service: Service, actor: CurrentActor, state: State
) -> views.ModelView:
    """Upload an initial model. The body is the safetensors file itself."""
    folder = state.settings.scratch
    async with spooled(request, folder, limit=state.settings.max_model_bytes) as path:
        return await run_in_threadpool(service.add_model, actor, path)


@router.get("/models", tags=["models"])
def list_models(
    service: Service,
    run: Annotated[Identifier | None, Query(description="versions of this run only")] = None,
    after: After = None,
    limit: Limit = 100,
) -> views.Page[views.ModelView]:
    """List a run's versions by round, or all models by digest."""
    return service.list_models(run, after=after, limit=limit)


@router.get("/models/{digest}", tags=["models"])
def show_model(digest: Digest, service: Service) -> views.ModelView:
    """Show one model with its arrays."""
    return service.show_model(digest)


@router.get("/models/{digest}/lineage", tags=["models"])
def model_lineage(digest: Digest, service: Service) -> list[views.ModelView]:
    """Show the model and its ancestors, newest first."""
    return service.model_lineage(digest)


@router.get(
    "/models/{digest}/content", tags=["models"], response_class=Response,
    responses={
        200: {"content": {"application/octet-stream": _BINARY}},
        206: {"description": "the range that was asked for"},
    },
)  # fmt: skip
def download_model(
    digest: Digest, service: Service, actor: CurrentActor, request: Request
) -> Response:
    """Download the safetensors file; Range requests continue a download."""
    path = service.open_model(actor, digest)
    if "range" in request.headers:  # refused here as a problem, served below
        parse_range(request.headers["range"], size=path.stat().st_size)
    name = f"{digest.removeprefix('sha256:')[:16]}.safetensors"
    return FileResponse(
        path,
        media_type="application/octet-stream",
        filename=name,
        headers={"ETag": f'"{digest}"', "Cache-Control": "private, immutable"},
    )
