"""Which problem (RFC 9457) every error becomes: one table from error class to status.

The `type` of a problem is `/problems/<name>`; names are stable, titles and details are for
people. A fault of our own is told as `internal-error` with nothing of the exception in it.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from fedward.coordinator.errors import (
    Conflict,
    CoordinatorError,
    EventRefused,
    InvalidInput,
    LimitExceeded,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    OffsetMismatch,
    PlanRefused,
    Unavailable,
    UpdateRefused,
)
from fedward.protocol.documents import Problem
from fedward.protocol.errors import (
    ClockSkew,
    DigestMismatch,
    InvalidArrays,
    InvalidDocument,
    InvalidProof,
    InvalidSignature,
    NonFinite,
    ProtocolError,
    SchemaMismatch,
)

MEDIA_TYPE = "application/problem+json"
_ECHO_CHARACTERS = 200
"""Longest part of a refused value that is told back."""
_SECRET_FIELDS = frozenset({"invite", "secret", "token"})
_log = logging.getLogger(__name__)

STATUS: Mapping[type[Exception], int] = {
    EventRefused: 409,
    NotFound: 404,
    Conflict: 409,
    PlanRefused: 422,
    UpdateRefused: 422,
    NotAllowed: 403,
    NotAuthenticated: 401,
    LimitExceeded: 413,
    Unavailable: 503,
    InvalidInput: 400,
    CoordinatorError: 400,
    InvalidDocument: 422,
    SchemaMismatch: 422,
    NonFinite: 422,
    InvalidArrays: 422,
    InvalidProof: 422,
    ClockSkew: 401,
    DigestMismatch: 401,
    InvalidSignature: 401,
    ProtocolError: 400,
}
"""The most specific class of an error decides."""

_HTTP_NAMES: Mapping[int, str] = {
    400: "malformed-body",
    404: "no-such-route",
    405: "method-not-allowed",
    413: "body-too-large",
    415: "unsupported-media-type",
}


class RequestRefused(CoordinatorError):
    """The request itself is wrong, whatever it asks for (400, or the given status)."""

    def __init__(
        self, name: str, detail: str, *, status: int = 400, got: Any = None, expected: Any = None
    ) -> None:
        super().__init__(name, detail)
        self.status = status
        self.got = got
        self.expected = expected


def problem(
    name: str,
    status: int,
    detail: str,
    *,
    got: Any = None,
    expected: Any = None,
    ids: Mapping[str, str] | None = None,
    reasons: Sequence[str] = (),
) -> Problem:
    """Build a problem whose title follows from its name."""
    return Problem(
        type=f"/problems/{name}",
        title=name.replace("-", " ").capitalize(),
        status=status,
        detail=detail,
        got=got,
        expected=expected,
        ids=dict(ids or {}),
        reasons=list(reasons),
    )


def problem_of(error: CoordinatorError | ProtocolError) -> Problem:
    """Translate an error of the domain."""
    status = _status(error)
    if isinstance(error, ProtocolError):
        if isinstance(error, ClockSkew):
            got, limit = round(error.skew_s), f"at most {error.limit_s:.0f} s"
            return problem(error.reason, status, str(error), got=got, expected=limit)
        return problem(error.reason, status, str(error))
    reasons = error.reasons if isinstance(error, PlanRefused) else ()
    expected: object = getattr(error, "expected", None)
    if isinstance(error, OffsetMismatch):
        expected = error.received_bytes
    return problem(
        error.name,
        error.status if isinstance(error, RequestRefused) else status,
        error.detail,
        got=getattr(error, "got", None),
        expected=expected,
        ids=error.ids,
        reasons=reasons,
    )


def problem_response(shown: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """Render a problem; 401 names the scheme, 503 says when to come back."""
    extra = dict(headers or {})
    if shown.status == 401:
        extra.setdefault("WWW-Authenticate", "Bearer")
    if shown.status == 503:
        extra.setdefault("Retry-After", "5")
    # What a peer sent is told back, and may be no Unicode: its lone surrogates become "?".
    body = json.dumps(shown.model_dump(), ensure_ascii=False, default=str).encode(errors="replace")
    return Response(body, status_code=shown.status, headers=extra, media_type=MEDIA_TYPE)


def refused_input(errors: Sequence[Any]) -> Problem:
    """Translate the findings of pydantic; all of them at once, each with its place."""
    if any(e["type"] == "json_invalid" for e in errors):
        first = errors[0]
        where = first["loc"][-1] if first["loc"] else 0
        why = first.get("ctx", {}).get("error", first["msg"])
        return problem(
            "malformed-json", 400, f"the body is not JSON: {why} at character {where}",
            expected="a JSON document",
        )  # fmt: skip
    found = [_finding(e) for e in errors]
    in_body = any(e["loc"] and e["loc"][0] == "body" for e in errors)
    name = "invalid-document" if in_body else "invalid-parameter"
    first_got, first_expected = found[0][1:] if found else (None, None)
    reasons = [reason for reason, _, _ in found]
    return problem(
        name, 422, "; ".join(reasons), got=first_got, expected=first_expected, reasons=reasons
    )


def install(app: FastAPI) -> None:
    """Make every error that leaves a route a problem."""
    handlers: dict[type[Exception], Callable[..., Any]] = {
        CoordinatorError: _domain_error,
        ProtocolError: _domain_error,
        RequestValidationError: _validation_error,
        HTTPException: _http_error,
        OSError: _storage_error,
        Exception: _our_fault,
    }
    for handled, handler in handlers.items():
        app.add_exception_handler(handled, handler)


async def _domain_error(_: Request, error: CoordinatorError | ProtocolError) -> Response:
    return problem_response(problem_of(error))


async def _validation_error(_: Request, error: RequestValidationError) -> Response:
    return problem_response(refused_input(error.errors()))


async def _http_error(request: Request, error: HTTPException) -> Response:
    name = _HTTP_NAMES.get(error.status_code, f"http-{error.status_code}")
    detail = str(error.detail)
    if error.status_code in {404, 405}:
        detail = f"{request.method} {request.url.path}: {detail}"
    allowed = (error.headers or {}).get("Allow") if error.headers else None
    shown = problem(
        name, error.status_code, detail,
        got=request.method if error.status_code == 405 else None, expected=allowed,
    )  # fmt: skip
    return problem_response(shown, error.headers)


async def _storage_error(request: Request, error: OSError) -> Response:
    """Answer for a file that could not be read or written, for want of space say."""
    if isinstance(error, ConnectionError | TimeoutError):
        return await _our_fault(request, error)  # of no file
    _log.error("%s %s: storage failed", request.method, request.url.path, exc_info=error)
    detail = f"storage failed: {error.strerror or type(error).__name__}; nothing changed"
    return problem_response(problem_of(Unavailable("storage-unavailable", detail)))


async def _our_fault(request: Request, error: Exception) -> Response:
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return problem_response(
        problem("internal-error", 500, "the coordinator failed; its own log says why")
    )


def _finding(error: Any) -> tuple[str, Any, Any]:
    """Return one finding as a line, what was got and what was expected."""
    where = [str(part) for part in error["loc"]]
    place = ".".join(where[1:] if where[:1] in (["body"], ["query"], ["path"]) else where) or "body"
    if error["type"] == "extra_forbidden":
        return f"{place}: unknown field", place, "a known field"
    if error["type"] == "missing":
        return f"{place}: missing", None, place
    got = None if _SECRET_FIELDS & set(where) else _echo(error.get("input"))
    shown = "" if got is None else f", got {got}"
    return f"{place}: {error['msg']}{shown}", got, error["msg"]


def _echo(value: Any) -> Any:
    if isinstance(value, bool | int | float) or value is None:
        return str(value) if isinstance(value, float) else value  # NaN has no JSON form
    text = value if isinstance(value, str) else f"a {type(value).__name__}"
    return text if len(text) <= _ECHO_CHARACTERS else text[:_ECHO_CHARACTERS] + "…"


def _status(error: Exception) -> int:
    for cls in type(error).__mro__:
        if cls in STATUS:
            return STATUS[cls]
    raise TypeError(f"no problem is known for {type(error).__name__}")
