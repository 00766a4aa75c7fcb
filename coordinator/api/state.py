"""What all requests of one process share, and how a route gets at it."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Request, Security
from fastapi.security import HTTPBearer

from fedward.coordinator.actors import Actor
from fedward.coordinator.api.polls import PollDesk
from fedward.coordinator.service import Coordinator
from fedward.coordinator.settings import Settings


@dataclass(frozen=True, slots=True)
class ApiState:
    """Made once by `create_app`; `stopping` is set when the process has been told to end."""

    coordinator: Coordinator
    settings: Settings
    desk: PollDesk
    stopping: asyncio.Event
    clock: Callable[[], float]


def api_state(request: Request) -> ApiState:
    """Return the state that `create_app` left in the application."""
    return cast("ApiState", request.app.state.api)


async def _service(request: Request) -> Coordinator:
    return api_state(request).coordinator


async def _state(request: Request) -> ApiState:
    return api_state(request)


async def _actor(request: Request) -> Actor:
    return cast("Actor", request.state.actor)


async def _site(request: Request) -> str:
    return cast("str", request.state.site)


API_TOKEN = Security(HTTPBearer(auto_error=False, scheme_name="API token"))
"""For the documentation's Authorize button only; the operators' gate checks the token."""
Service = Annotated[Coordinator, Depends(_service)]
State = Annotated[ApiState, Depends(_state)]
CurrentActor = Annotated[Actor, Depends(_actor)]
"""Set by the operators' gate."""
CurrentSite = Annotated[str, Depends(_site)]
"""Set by the agents' gate."""
