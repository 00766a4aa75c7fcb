"""What stands before and after every agent route: verified requests, signed responses.

Order: protocol version (a comparison of text, so that an old agent is told clearly), signature
and clock, size and digest of the body, then one use of the nonce. Only then is the route looked
for. An enrolment's body comes first, as it holds the key.
Every response is signed by the coordinator, problems included, those to unknown keys too: an
agent believes no answer that its pinned key did not sign. To be signed, a response is gathered
first; nothing here is larger than one chunk.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fedward.coordinator.actors import ANONYMOUS
from fedward.coordinator.api.bodies import headers_of, read_limited, replay
from fedward.coordinator.api.problems import (
    RequestRefused,
    problem_of,
    problem_response,
    refused_input,
)
from fedward.coordinator.api.state import ApiState
from fedward.coordinator.errors import CoordinatorError
from fedward.protocol.documents import (
    MAX_CHUNK_BYTES,
    MAX_DOCUMENT_BYTES,
    PROTOCOL_VERSION,
    PublicKey,
)
from fedward.protocol.errors import InvalidSignature, ProtocolError
from fedward.protocol.signatures import (
    Verified,
    key_id_of,
    public_bytes,
    require_body,
    sign_response,
    verify_request,
)

PREFIX = "/agent/v1"
ENROL = f"{PREFIX}/enrol"
UPLOADS = f"{PREFIX}/uploads/"
_BODY_TIMEOUT_S = 300.0
_CHUNKS_IN_MEMORY = 32
"""How many upload chunks are held at once; further ones wait in their sockets."""
_VERSION_HEADER = "fedward-protocol"


@dataclass(slots=True)
class _Gathered:
    """A response on its way out."""

    status: int = 0
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytearray = field(default_factory=bytearray)
    complete: bool = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], list(message.get("headers", []))
        elif message["type"] == "http.response.body":
            self.body += message.get("body", b"")
            self.complete = not message.get("more_body", False)


class _Announced(BaseModel):
    """The one field of an enrolment that is needed before its signature can be checked."""

    model_config = ConfigDict(extra="ignore")
    public_key: PublicKey


class AgentGate:
    """ASGI middleware for `/agent/v1`."""

    def __init__(self, app: ASGIApp, *, state: ApiState) -> None:
        self._app = app
        self._state = state
        self._chunks = asyncio.Semaphore(_CHUNKS_IN_MEMORY)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Verify, pass on, sign."""
        if scope["type"] != "http" or not scope["path"].startswith(PREFIX + "/"):
            await self._app(scope, receive, send)
        elif _is_upload(scope):
            async with self._chunks:
                await self._answer(scope, receive, send)
        else:
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        gathered = _Gathered()
        try:
            refused = None
            try:
                receive = await self._admit(scope, receive)
            except (CoordinatorError, ProtocolError) as error:
                refused = problem_response(problem_of(error))
            except ValidationError as error:
                refused = problem_response(refused_input(error.errors(include_url=False)))
            answer: ASGIApp = self._app if refused is None else refused
            await answer(scope, receive, gathered.send)
        except ClientDisconnect:
            return
        finally:
            # Also after a fault: its 500 has been gathered, and the fault goes on to the log.
            if gathered.complete:
                await self._send_signed(scope, gathered, send)

    async def _admit(self, scope: Scope, receive: Receive) -> Receive:
        """Set `state.site` (enrolment: `state.key_id`) and return the body for the route."""
        got = headers_of(scope).get(_VERSION_HEADER)
        if got != PROTOCOL_VERSION:
            raise RequestRefused(
                "protocol-unsupported", f"Fedward-Protocol: got {got}, expected {PROTOCOL_VERSION}",
                got=got, expected=PROTOCOL_VERSION,
            )  # fmt: skip
        state = scope.setdefault("state", {})
        if scope["path"] == ENROL:
            body = await _read_body(scope, receive)
            state["key_id"] = await run_in_threadpool(self._verify_enrolment, scope, body)
        else:
            # Memory for a body only for who signed this request.
            verified = await run_in_threadpool(self._verify_known, scope)
            body = await _read_body(scope, receive)
            state["site"] = await run_in_threadpool(self._admit_known, verified, body)
        return replay(body, receive)

    def _verify_known(self, scope: Scope) -> Verified:
        with self._denials_recorded("agent.request"):
            return self._verify(scope, None, self._state.coordinator.find_site_key)

    def _admit_known(self, verified: Verified, body: bytes) -> str:
        with self._denials_recorded("agent.request"):
            require_body(verified, body)
        service = self._state.coordinator
        return service.admit(verified.key_id, verified.nonce, created=verified.created)

    def _verify_enrolment(self, scope: Scope, body: bytes) -> str:
        """Verify with the key that the body announces: the signature proves its possession."""
        announced = bytes.fromhex(_Announced.model_validate_json(body).public_key)
        with self._denials_recorded("site.enrol"):
            return self._verify(scope, body, lambda _: announced).key_id

    @contextmanager
    def _denials_recorded(self, action: str) -> Iterator[None]:
        try:
            yield
        except InvalidSignature as error:
            self._state.coordinator.record_denial(ANONYMOUS, action, reason=error.reason)
            raise

    def _verify(
        self, scope: Scope, body: bytes | None, find_key: Callable[[str], bytes | None]
    ) -> Verified:
        return verify_request(
            method=scope["method"],
            url=_url(scope),
            headers=headers_of(scope),
            body=body,
            find_key=find_key,
            now=self._state.clock(),
            tolerance_s=self._state.settings.clock_tolerance_s,
        )

    async def _send_signed(self, scope: Scope, gathered: _Gathered, send: Send) -> None:
        # An answer to HEAD has no body, whatever the route made.
        body = b"" if scope["method"] == "HEAD" else bytes(gathered.body)
        answer = Response(status_code=gathered.status)
        answer.raw_headers = [h for h in gathered.headers if h[0].lower() != b"content-length"]
        try:
            signed = await run_in_threadpool(self._sign, scope, gathered, body)
        except InvalidSignature:
            # Nothing to bind the answer to: the request is unsigned, no agent waits for it.
            signed = {}
        if gathered.status != 204:
            answer.headers["content-length"] = str(len(body))
        for name, value in signed.items():
            answer.headers[name] = value
        start = {"type": "http.response.start", "status": gathered.status}
        await send(start | {"headers": answer.raw_headers})
        await send({"type": "http.response.body", "body": body})

    def _sign(self, scope: Scope, gathered: _Gathered, body: bytes) -> dict[str, str]:
        key = self._state.coordinator.context.key
        return sign_response(
            key,
            key_id=key_id_of(public_bytes(key)),
            status=gathered.status,
            headers=headers_of({"headers": gathered.headers}),
            body=body,
            request=(scope["method"], _url(scope), headers_of(scope)),
            now=self._state.clock(),
        )


def _is_upload(scope: Scope) -> bool:
    path: str = scope["path"]
    return scope["method"] == "PUT" and path.startswith(UPLOADS)


async def _read_body(scope: Scope, receive: Receive) -> bytes:
    limit = MAX_CHUNK_BYTES if _is_upload(scope) else MAX_DOCUMENT_BYTES
    return await read_limited(scope, receive, limit=limit, timeout_s=_BODY_TIMEOUT_S)


def _url(scope: Scope) -> str:
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope["query_string"]
    return (path + b"?" + query if query else path).decode("latin-1")
