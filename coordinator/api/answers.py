"""Answers of POST calls, made once per `Idempotency-Key`.

Without the header the call is simply made. With it, the answer is kept in the same transaction
as what it reports: the same request again gets the same bytes, another request under the same
key is a conflict.
"""

import hashlib
from collections.abc import Callable
from typing import Annotated

from fastapi import Depends, Header, Request, Response
from pydantic import BaseModel, StringConstraints

from fedward.coordinator.access import StoredAnswer
from fedward.coordinator.actors import Actor
from fedward.coordinator.api.state import CurrentActor, Service
from fedward.coordinator.service import Coordinator

IdempotencyKey = Annotated[
    Annotated[str, StringConstraints(pattern=r"^[\x21-\x7e]{1,200}$")] | None,
    Header(
        alias="Idempotency-Key",
        description="1 to 200 visible characters; a repeat answers as the first call did",
    ),
]


class OnceCall:
    """Turns what a call of the service returns into a response, once per key."""

    def __init__(
        self, service: Coordinator, actor: Actor, *, key: str | None, request_digest: str
    ) -> None:
        self._service = service
        self._actor = actor
        self._key = key
        self._request_digest = request_digest

    def __call__(
        self, call: Callable[[], BaseModel], *, status: int = 200, shown_once: bool = False
    ) -> Response:
        """Make the call. An answer that is `shown_once` holds a secret and is never kept."""

        def answer() -> StoredAnswer:
            body = call().model_dump_json().encode()
            return StoredAnswer(status=status, body=body, shown_once=shown_once)

        if self._key is None:
            given = answer()
        else:
            given = self._service.call_once(
                self._actor, self._key, request_digest=self._request_digest, call=answer
            )
        headers = {"Cache-Control": "no-store"} if shown_once else None
        return Response(given.body, given.status, headers=headers, media_type="application/json")


async def _once(
    request: Request, service: Service, actor: CurrentActor, key: IdempotencyKey = None
) -> OnceCall:
    hasher = hashlib.sha256()
    for part in (
        request.method.encode(), request.url.path.encode(), request.url.query.encode(),
        await request.body(),
    ):  # fmt: skip
        hasher.update(len(part).to_bytes(8, "big") + part)
    digest = f"sha256:{hasher.hexdigest()}"
    return OnceCall(service, actor, key=key, request_digest=digest)


Once = Annotated[OnceCall, Depends(_once)]
