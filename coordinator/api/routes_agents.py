"""The agents' half: /agent/v1. The gate has verified the request and signs the answer."""

from typing import Annotated, cast

from fastapi import APIRouter, Header, Query, Request, Response
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool

from fedward.coordinator.api.blob_ranges import read_range
from fedward.coordinator.api.requests import Number, ProgressNote
from fedward.coordinator.api.state import CurrentSite, Service, State
from fedward.coordinator.api.strict_route import StrictRoute
from fedward.protocol.documents import (
    Digest,
    Enrolment,
    Identifier,
    Membership,
    ResultReceipt,
    Task,
    TaskResult,
    UploadState,
)

router = APIRouter(prefix="/agent/v1", route_class=StrictRoute, tags=["agents"])

FenceHeader = Annotated[Number, Header(alias="Upload-Fence", ge=1)]
Offset = Annotated[Number, Header(alias="Upload-Offset", ge=0)]
_BYTES = {"schema": {"type": "string", "format": "binary"}}


@router.post("/enrol", status_code=201)
def enrol(enrolment: Enrolment, request: Request, service: Service) -> Membership:
    """Join with an invite. The request is signed with the key that it announces."""
    return service.enrol(enrolment, key_id=cast("str", request.state.key_id))


@router.get("/next", response_model=Task, responses={204: {"description": "no task now"}})
async def next_task(
    request: Request,
    site: CurrentSite,
    state: State,
    wait: Annotated[float, Query(ge=0, le=3600, description="seconds to wait for a task")] = 25.0,
) -> Response:
    """Lease the site's next task; wait for one (long poll)."""
    task = await state.desk.wait_for(
        site,
        lambda: state.coordinator.next_task(site),
        wait_s=min(wait, state.settings.poll_max_s),
        receive=request.receive,
    )
    if task is None:
        return Response(status_code=204)
    return Response(task.model_dump_json(), media_type="application/json")


@router.get(
    "/blobs/{digest}",
    response_class=Response,
    responses={200: {"content": {"application/octet-stream": _BYTES}}},
)
def fetch_blob(digest: Digest, site: CurrentSite, service: Service, request: Request) -> Response:
    """Fetch a plan, model or bundle, or a range of it, of a run that the site takes part in."""
    path = service.open_blob(site, digest)
    answer = read_range(path, request.headers.get("range"), digest=digest)
    answer.background = BackgroundTask(
        service.count_sent, site, digest, size_bytes=len(answer.body)
    )
    return answer


@router.head("/uploads/{task}", response_class=Response)
def upload_offset(
    task: Identifier, fence: FenceHeader, site: CurrentSite, service: Service
) -> Response:
    """Say in `Upload-Offset` how many bytes of the update have arrived."""
    got = service.upload_state(site, task, fence=fence)
    return Response(headers={"Upload-Offset": str(got.received_bytes), "Cache-Control": "no-store"})


@router.put(
    "/uploads/{task}",
    openapi_extra={"requestBody": {"content": {"application/octet-stream": _BYTES}}},
)
async def upload_chunk(
    *,
    task: Identifier,
    fence: FenceHeader,
    offset: Offset,
    request: Request,
    site: CurrentSite,
    service: Service,
) -> UploadState:
    """Append a chunk of the update. A wrong offset is a conflict that names the right one."""
    data = await request.body()
    return await run_in_threadpool(
        service.append_chunk, site, task, fence=fence, offset=offset, data=data
    )


@router.post("/tasks/{task}/progress", status_code=204, response_class=Response)
def note_progress(
    task: Identifier, note: ProgressNote, site: CurrentSite, service: Service
) -> None:
    """Show that the site works on the task."""
    service.note_progress(site, task, fence=note.fence)


@router.post("/tasks/{task}/result")
def submit_result(
    task: Identifier, result: TaskResult, site: CurrentSite, service: Service
) -> ResultReceipt:
    """Hand in a result; the same again gets the same receipt."""
    return service.submit_result(site, task, result=result)
