"""The small bodies and parameters of operator calls that are no wire documents of their own."""

import re
from typing import Annotated

from fastapi import Query
from pydantic import BeforeValidator, ConfigDict, Field

from fedward.coordinator.actors import Role
from fedward.protocol.documents import MAX_INTEGER, Digest, Document, Fence, Name, Slug

DAY_S = 24 * 3600.0

_DIGITS = re.compile(r"[0-9]{1,16}", re.ASCII)


def _in_digits(value: object) -> object:
    """Refuse the other ways to write an integer that pydantic takes: `1.0`, `+1`, ` 1`, `1_0`."""
    if isinstance(value, str) and not _DIGITS.fullmatch(value):
        raise ValueError(f"expected an integer in digits, at most {MAX_INTEGER}")
    return value


Number = Annotated[int, BeforeValidator(_in_digits), Field(le=MAX_INTEGER)]
"""Every integer in a path, a query or a header: SQL, JSON and the audit log can hold it."""

After = Annotated[
    str | None,
    Query(max_length=200, description="`next` of the page before; leave out for the first page"),
]
Limit = Annotated[Number, Query(ge=1, le=500, description="how many items at most")]
AfterSeq = Annotated[Number, Query(ge=0, description="records after this sequence number")]


class NewRun(Document):
    """Which plan to execute."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"plan": "sha256:" + "5e" * 32}]})

    plan: Digest


class NewInvite(Document):
    """Whom to invite; the invite ends after `ttl_s` seconds."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"site": "hospital-a", "organisation": "Hospital A", "ttl_s": 259200}]
        }
    )

    site: Slug
    organisation: Name
    ttl_s: Annotated[float, Field(gt=0, le=30 * DAY_S)] = 3 * DAY_S


class TokenRequest(Document):
    """Who gets a token, for how many seconds, and in which role."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"name": "dr-ito laptop", "role": "researcher", "ttl_s": 2592000}]
        }
    )

    name: Name
    role: Role
    ttl_s: Annotated[float, Field(gt=0, le=90 * DAY_S)] = 30 * DAY_S


class ProgressNote(Document):
    """A sign of life for the lease with this fence."""

    fence: Fence
