"""What stands before every operator route: who calls, and how large the body may be.

The token is checked before the route is even looked for, so that without one nothing can be
learned. Whether the caller's role may use the route is decided by `strict_route.py`.
"""

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from fedward.coordinator.api.bodies import headers_of, read_limited, replay
from fedward.coordinator.api.problems import problem_of, problem_response
from fedward.coordinator.api.state import ApiState
from fedward.coordinator.errors import CoordinatorError, NotAuthenticated

PREFIX = "/api/v1"
STREAMED = frozenset({f"{PREFIX}/apps", f"{PREFIX}/models"})
"""Paths whose bodies are files; their routes limit and spool them."""
_BODY_TIMEOUT_S = 60.0


class OperatorGate:
    """ASGI middleware for `/api/v1`: bearer token, then a limited body."""

    def __init__(self, app: ASGIApp, *, state: ApiState) -> None:
        self._app = app
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through with `state.actor` set, or answer with a problem."""
        if scope["type"] != "http" or not _is_ours(scope["path"]):
            await self._app(scope, receive, send)
            return
        try:
            actor = await run_in_threadpool(
                self._state.coordinator.authenticate_token, _bearer(headers_of(scope))
            )
            if scope["path"] not in STREAMED:
                limit = self._state.settings.max_json_bytes
                body = await read_limited(scope, receive, limit=limit, timeout_s=_BODY_TIMEOUT_S)
                receive = replay(body, receive)
        except CoordinatorError as error:
            await problem_response(problem_of(error))(scope, receive, send)
            return
        except ClientDisconnect:
            return
        scope.setdefault("state", {})["actor"] = actor
        await self._app(scope, receive, send)


def _is_ours(path: str) -> bool:
    return path == PREFIX or path.startswith(PREFIX + "/")


def _bearer(headers: dict[str, str]) -> str:
    scheme, _, secret = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not secret.strip():
        raise NotAuthenticated(
            "token-missing", "no API token; expected the header Authorization: Bearer fw_…"
        )
    return secret.strip()
