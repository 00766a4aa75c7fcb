"""Reading request bodies within limits: into memory, or into a temporary file."""

import asyncio
import os
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive, Scope

from fedward.coordinator.api.problems import RequestRefused
from fedward.coordinator.errors import LimitExceeded

_SPOOL_BYTES = 4 * 1024 * 1024
"""Bytes gathered before a thread writes them."""
_PROGRESS_TIMEOUT_S = 60.0
_LENGTH_DIGITS = 19
"""As many as 2**63 has; Python refuses to read thousands of them."""


def headers_of(scope: Scope) -> dict[str, str]:
    """Return the headers, names in lower case, repeated ones joined as RFC 9110 says."""
    joined: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        joined[name] = f"{joined[name]}, {value}" if name in joined else value
    return joined


def require_length(scope: Scope, *, limit: int) -> None:
    """Refuse a body that announces more than `limit` bytes, before any of it is read."""
    announced = headers_of(scope).get("content-length", "0")
    if not announced.isascii() or not announced.isdigit() or len(announced) > _LENGTH_DIGITS:
        raise RequestRefused("malformed-header", f"Content-Length: got {announced[:80]!r}")
    if int(announced) > limit:
        raise too_large(int(announced), limit=limit)


def too_large(got: int, *, limit: int) -> LimitExceeded:
    """Say how large a body may be."""
    return LimitExceeded("body-too-large", f"the body has {got} bytes or more, limit is {limit}")


async def read_limited(scope: Scope, receive: Receive, *, limit: int, timeout_s: float) -> bytes:
    """Read the whole body.

    Raises:
        LimitExceeded: more than `limit` bytes were announced or sent.
        RequestRefused: it did not arrive within `timeout_s`.
        ClientDisconnect: the peer went away.
    """
    require_length(scope, limit=limit)
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                part = message.get("body", b"")
                size += len(part)
                if size > limit:
                    raise too_large(size, limit=limit)
                parts.append(part)
                if not message.get("more_body", False):
                    return parts[0] if len(parts) == 1 else b"".join(parts)
    except TimeoutError as error:
        raise _too_slow(timeout_s) from error


def replay(body: bytes, receive: Receive) -> Receive:
    """Hand out a body that was read already, then whatever the connection says next."""
    given = False

    async def receive_again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again


async def _next_part(stream: AsyncGenerator[bytes, None]) -> bytes:
    """Return the next bytes of a body, none at its end; a large body is limited by progress."""
    try:
        async with asyncio.timeout(_PROGRESS_TIMEOUT_S):
            return await anext(stream, b"")
    except TimeoutError as error:
        raise _too_slow(_PROGRESS_TIMEOUT_S) from error


def _too_slow(timeout_s: float) -> RequestRefused:
    detail = f"no (more of the) body arrived within {timeout_s:.0f} s"
    return RequestRefused("body-timeout", detail, status=408)


@asynccontextmanager
async def spooled(request: Request, folder: Path, *, limit: int) -> AsyncIterator[Path]:
    """Stream the body into a file in `folder` that is removed at the end.

    Raises:
        LimitExceeded: more than `limit` bytes were announced or sent.
    """
    require_length(request.scope, limit=limit)
    handle, name = tempfile.mkstemp(dir=folder, prefix="upload-")
    try:
        with os.fdopen(handle, "wb") as file:
            size, buffer = 0, bytearray()

            def flush() -> None:
                file.write(buffer)
                buffer.clear()

            stream = request.stream()
            while chunk := await _next_part(stream):
                size += len(chunk)
                if size > limit:
                    raise too_large(size, limit=limit)
                buffer += chunk
                if len(buffer) >= _SPOOL_BYTES:
                    await run_in_threadpool(flush)
            await run_in_threadpool(flush)
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)  # noqa: ASYNC240  # also when cancelled
