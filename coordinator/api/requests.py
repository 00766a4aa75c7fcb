"""The small bodies and parameters of operator calls that are no wire documents of their own."""

from typing import Annotated

from fastapi import Query
from pydantic import ConfigDict, Field

from fedward.coordinator.actors import Role
from fedward.protocol.documents import Digest, Document, Name, Slug

DAY_S = 24 * 3600.0

After = Annotated[
    str | None,
    Query(max_length=200, description="`next` of the page before; leave out for the first page"),
]
Limit = Annotated[int, Query(ge=1, le=500, description="how many items at most")]
AfterSeq = Annotated[int, Query(ge=0, description="records after this sequence number")]


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

    fence: Annotated[int, Field(ge=1)]
