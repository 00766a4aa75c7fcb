import asyncio

import pytest
from starlette.requests import ClientDisconnect

from fedward.coordinator.api import bodies
from fedward.coordinator.api.problems import RequestRefused
from fedward.coordinator.errors import LimitExceeded

pytestmark = pytest.mark.anyio
UPLOAD = "/agent/v1/uploads/task-" + "0" * 24


def connection(*parts, then="more"):
    """Return a receive function: these parts, then the end, a cut, or silence."""
    messages = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    if then == "end":
        messages[-1]["more_body"] = False
    if then == "cut":
        messages.append({"type": "http.disconnect"})

    async def receive():
        return messages.pop(0) if messages else await asyncio.Event().wait()

    return receive


def scope(**headers):
    return {"headers": [(k.replace("_", "-").encode(), v.encode()) for k, v in headers.items()]}


async def read(receive, *, limit=10, timeout_s=5.0, **headers):
    return await bodies.read_limited(scope(**headers), receive, limit=limit, timeout_s=timeout_s)


async def test_parts_are_joined_up_to_the_limit():
    assert await read(connection(b"01234", b"56789", then="end")) == b"0123456789"


async def test_one_byte_over_the_limit_is_refused_announced_or_not():
    with pytest.raises(LimitExceeded, match="limit is 10"):
        await read(connection(b"01234", b"567890"))
    with pytest.raises(LimitExceeded):
        await read(connection(), content_length="11")


@pytest.mark.parametrize("length", ["-1", "x", "1, 2", "\u0661", "1" * 5000])
async def test_a_malformed_length_is_refused(length):
    headers = {"headers": [(b"content-length", length.encode())]}
    with pytest.raises(RequestRefused, match="Content-Length"):
        await bodies.read_limited(headers, connection(), limit=10, timeout_s=5.0)


async def test_a_cut_and_a_stalled_body_end_the_wait():
    with pytest.raises(ClientDisconnect):
        await read(connection(b"0", then="cut"))
    with pytest.raises(RequestRefused) as caught:
        await read(connection(b"0"), timeout_s=0.01)
    assert (caught.value.name, caught.value.status) == ("body-timeout", 408)


async def test_repeated_headers_are_joined():
    repeated = {"headers": [(b"Signature", b"a=:AA==:"), (b"signature", b"b=:BB==:")]}
    assert bodies.headers_of(repeated) == {"signature": "a=:AA==:, b=:BB==:"}


@pytest.mark.parametrize("stranger", [True, False])
async def test_no_chunk_is_read_of_who_did_not_sign_with_a_known_key(app, new_agent, stranger):
    headers = {"fedward-protocol": "fedward/1", "content-length": "8000000"}
    if stranger:
        headers |= new_agent().signed("PUT", UPLOAD, b"x" * 8_000_000)
    sent = []

    async def never():
        raise AssertionError("the body was read")

    async def send(message):
        sent.append(message)

    request = {
        "type": "http", "method": "PUT", "path": UPLOAD, "raw_path": UPLOAD.encode(),
        "query_string": b"", "scheme": "http", "http_version": "1.1", "app": app,
        "headers": [(k.lower().encode(), v.encode()) for k, v in headers.items()],
    }  # fmt: skip
    await app(request, never, send)
    assert sent[0]["status"] == 401
