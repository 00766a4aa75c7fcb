"""Behind a proxy: only what came to the proxy over HTTPS is served.

uvicorn has put the scheme of `X-Forwarded-Proto` into the scope where the peer is a trusted
proxy. Health checks are let through: they carry nothing.
"""

from starlette.types import ASGIApp, Receive, Scope, Send

from fedward.coordinator.api.problems import problem, problem_response

_OPEN = frozenset({"/healthz", "/readyz"})


class HttpsGate:
    """ASGI middleware; stands before all others when `behind_proxy` is set."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let through, or answer `https-required`."""
        if scope["type"] == "http" and not _is_safe(scope):
            shown = problem(
                "https-required", 403, "this request crossed the network without TLS",
                got=scope["scheme"], expected="https, told by a trusted proxy",
            )  # fmt: skip
            await problem_response(shown)(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _is_safe(scope: Scope) -> bool:
    return scope["scheme"] == "https" or scope["path"] in _OPEN
