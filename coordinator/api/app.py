"""The application: gates, routes, problems, OpenAPI. It holds no rule and no SQL.

From the outside in: HTTPS gate (behind a proxy), agents' gate, operators' gate, then fastapi.
The gates stand outside of fastapi's own error handling, so that even the answer to a fault of
ours is signed when an agent gets it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from fastapi import FastAPI, Request, Response
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp

from fedward.coordinator.api import (
    docs_page,
    problems,
    routes_agents,
    routes_audit,
    routes_files,
    routes_health,
    routes_runs,
    routes_studies,
)
from fedward.coordinator.api.agent_gate import AgentGate
from fedward.coordinator.api.https_gate import HttpsGate
from fedward.coordinator.api.operator_gate import OperatorGate
from fedward.coordinator.api.polls import Changes, PollDesk
from fedward.coordinator.api.state import ApiState
from fedward.coordinator.scheduler import Scheduler
from fedward.coordinator.service import Coordinator
from fedward.coordinator.settings import Settings

DESCRIPTION = """
Operators and researchers use `/api/v1` with an API token (`Authorization: Bearer fw_…`).
Agents use `/agent/v1`; their requests and our answers are signed (RFC 9421, Ed25519).
Errors are problem documents (RFC 9457) with a stable `type`. Every POST takes an
`Idempotency-Key`. Lists are paged: pass `next` as `after`.
"""
TAGS = (
    "studies", "sites", "apps", "models", "plans", "runs", "audit", "tokens", "agents", "health",
)  # fmt: skip
"""The order in which the documentation shows the routes."""
ROUTERS = (
    routes_agents.router,  # first, as most requests are theirs
    routes_health.router,
    routes_studies.router,
    routes_files.router,
    routes_runs.router,
    routes_audit.router,
)


class _App(FastAPI):
    """fastapi with our gates around all of it."""

    def build_middleware_stack(self) -> ASGIApp:
        """Wrap the stack, error handling included."""
        state: ApiState = self.state.api
        stack: ASGIApp = OperatorGate(super().build_middleware_stack(), state=state)
        stack = AgentGate(stack, state=state)
        return HttpsGate(stack) if state.settings.behind_proxy else stack


def create_app(
    coordinator: Coordinator,
    scheduler: Scheduler | None,
    settings: Settings,
    *,
    clock: Callable[[], float],
    on_fault: Callable[[], None] = lambda: None,
) -> FastAPI:
    """Build the application; the scheduler (none in some tests) lives as long as it is served.

    Args:
        on_fault: called when the scheduler has ended by itself: no timer fires any more, and
            the process had better end, too.
    """
    stopping = asyncio.Event()
    changes = Changes(lambda: coordinator.audit_head().size, fresh_s=settings.poll_recheck_s / 2)
    desk = PollDesk(
        coordinator.notifier,
        changes=changes,  # every change of a run is on the audit log
        stopping=stopping,
        recheck_s=settings.poll_recheck_s,
    )

    app = _App(
        title="fedward coordinator",
        version="1",
        description=DESCRIPTION,
        lifespan=_lifespan(scheduler, stopping, on_fault),
        redirect_slashes=False,
        openapi_tags=[{"name": name} for name in TAGS],
        docs_url=None,
        redoc_url=None,
    )
    app.state.api = ApiState(coordinator, settings, desk, stopping, clock)
    problems.install(app)
    docs_page.install(app)
    app.add_exception_handler(ClientDisconnect, _peer_left)
    for router in ROUTERS:
        app.include_router(router)
    return app


def _lifespan(
    scheduler: Scheduler | None, stopping: asyncio.Event, on_fault: Callable[[], None]
) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        if scheduler is None:
            yield
            return
        running = asyncio.create_task(scheduler.run())
        running.add_done_callback(lambda _: None if stopping.is_set() else on_fault())
        try:
            yield
        finally:
            stopping.set()
            scheduler.stop()
            await running

    return lifespan


def begin_stop(app: FastAPI) -> None:
    """Answer open polls and end event streams; call it on the event loop."""
    state: ApiState = app.state.api
    state.stopping.set()


async def _peer_left(_: Request, __: Exception) -> Response:
    return Response(status_code=400)  # nobody reads it
