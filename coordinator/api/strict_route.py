"""The route class of both halves: roles, then no unknown query parameter, then JSON text."""

from collections.abc import Callable, Coroutine
from typing import Any, cast

from fastapi import Request, Response
from fastapi.dependencies.utils import get_flat_dependant
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool

from fedward.coordinator.actors import Actor
from fedward.coordinator.api.auth import permits, permitted_roles
from fedward.coordinator.api.json_body import JsonRequest
from fedward.coordinator.api.problems import RequestRefused
from fedward.coordinator.api.state import api_state
from fedward.coordinator.errors import NotAllowed


class StrictRoute(APIRoute):
    """Refuses query parameters that the route does not declare, and text that is not Unicode."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Wrap fastapi's handler."""
        inner = super().get_route_handler()
        known = {field.alias for field in get_flat_dependant(self.dependant).query_params}

        async def handle(request: Request) -> Response:
            unknown = sorted(set(request.query_params) - known)
            if unknown:
                raise RequestRefused(
                    "invalid-parameter", f"unknown query parameters: {', '.join(unknown)}",
                    status=422, got=unknown, expected=sorted(known),
                )  # fmt: skip
            return await inner(JsonRequest(request.scope, request.receive))

        return handle


class OperatorRoute(StrictRoute):
    """Lets through only whom the role table names for this route's name."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Wrap the strict handler."""
        inner = super().get_route_handler()

        async def handle(request: Request) -> Response:
            actor = cast("Actor", request.state.actor)
            if not permits(self.name, actor.role):
                service = api_state(request).coordinator
                reason = "role-lacks-permission"
                await run_in_threadpool(service.record_denial, actor, self.name, reason=reason)
                roles = permitted_roles(self.name)
                raise NotAllowed(
                    reason,
                    f"{self.name} needs one of the roles {', '.join(roles) or '(none)'}; "
                    f"token {actor.id} has {actor.role}",
                    token=actor.id,
                )
            return await inner(request)

        return handle
