"""The operator's connection to a coordinator: JSON calls, file transfers, event streams.

The only module of the command line that knows HTTP. Every POST carries an Idempotency-Key, so
that a call that is sent twice by a proxy counts once.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import truststore

from .errors import CliError, InvalidFile, NotReachable, ProblemAnswer

PAGE_ITEMS = 200
CHUNK_BYTES = 1024 * 1024
TIMEOUT = httpx.Timeout(60.0, connect=10.0)
EVENT_TIMEOUT = httpx.Timeout(60.0, connect=10.0)
"""Longer than the coordinator's keep-alive comment, so that a dead connection is noticed."""
JsonObject = dict[str, Any]
Moved = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One server-sent event; `id` is where a later stream goes on."""

    id: str | None
    name: str
    data: Any


class Api:
    """Calls of /api/v1 with one token.

    All methods raise NotReachable when there is no answer and ProblemAnswer for a refusal.
    """

    def __init__(
        self, url: str, token: str, *, transport: httpx.BaseTransport | None = None
    ) -> None:
        self.url = url
        try:
            self._client = httpx.Client(
                base_url=url + "/api/v1",
                headers={"Authorization": f"Bearer {token}"},
                timeout=TIMEOUT,
                transport=transport,
                verify=_trusted() if url.startswith("https:") else True,
            )
        except (httpx.InvalidURL, UnicodeEncodeError) as error:
            raise CliError(f"the address {url!r} or the token is malformed: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def get(self, path: str, **query: str | int | float | None) -> Any:
        """Return the JSON answer of a GET; a `None` in the query is left out."""
        given = {key: value for key, value in query.items() if value is not None}
        return self._json(self._client.build_request("GET", path, params=given))

    def get_all(
        self,
        path: str,
        *,
        limit: int | None = None,
        start: str | None = None,
        **query: str | None,
    ) -> list[Any]:
        """Return the items of a paged list after `start`, at most `limit` of them."""
        items: list[Any] = []
        after = start
        while limit is None or len(items) < limit:
            wanted = PAGE_ITEMS if limit is None else min(PAGE_ITEMS, limit - len(items))
            page = self.get(path, after=after, limit=wanted, **query)
            items.extend(page["items"])
            after = page.get("next")
            if after is None:
                break
        return items

    def post(self, path: str, document: JsonObject | None = None) -> Any:
        """Return the JSON answer of a POST."""
        return self._json(
            self._client.build_request(
                "POST", path, json=document, headers={"Idempotency-Key": secrets.token_hex(16)}
            )
        )

    def upload(self, path: str, file: Path, *, media_type: str, moved: Moved) -> Any:
        """Send a file as the body of a POST, in chunks; `moved` hears of each."""
        try:
            size_bytes = file.stat().st_size
            with file.open("rb") as stream:
                return self._json(
                    self._client.build_request(
                        "POST",
                        path,
                        content=_chunks(stream.read, moved),
                        headers={
                            "Idempotency-Key": secrets.token_hex(16),
                            "Content-Type": media_type,
                            "Content-Length": str(size_bytes),
                        },
                    )
                )
        except OSError as error:
            raise InvalidFile(f"{file}: {error.strerror}") from error

    def download(self, path: str, target: Path, *, digest: str, moved: Moved) -> int:
        """Fetch a file that has this digest to `target`, through a temporary name beside it.

        Returns:
            The number of bytes.

        Raises:
            CliError: what arrived has another digest; `target` is untouched.
        """
        partial = target.with_name(target.name + ".part")
        hasher, size_bytes = hashlib.sha256(), 0
        try:
            with self._client.stream("GET", path) as response, partial.open("wb") as out:
                if response.is_error:
                    response.read()
                    raise self._problem(response)
                for chunk in response.iter_bytes(CHUNK_BYTES):
                    hasher.update(chunk)
                    size_bytes += out.write(chunk)
                    moved(len(chunk))
            got = f"sha256:{hasher.hexdigest()}"
            if got != digest:
                raise CliError(f"the download has digest {got}, expected {digest}")
            partial.replace(target)
        except httpx.TransportError as error:
            raise self._not_reachable(error) from error
        except OSError as error:
            raise InvalidFile(f"{target}: {error.strerror}") from error
        finally:
            partial.unlink(missing_ok=True)
        return size_bytes

    def events(self, path: str, *, after: str | None = None) -> Iterator[ServerEvent]:
        """Yield the events of a stream until the coordinator ends it.

        Raises:
            NotReachable: the connection was cut; go on after the last event's id.
        """
        headers = {"Accept": "text/event-stream"}
        if after is not None:
            headers["Last-Event-ID"] = after
        try:
            with self._client.stream(
                "GET", path, headers=headers, timeout=EVENT_TIMEOUT
            ) as response:
                if response.is_error:
                    response.read()
                    raise self._problem(response)
                yield from parse_events(response.iter_lines())
        except httpx.TransportError as error:
            raise self._not_reachable(error) from error

    def _json(self, request: httpx.Request) -> Any:
        try:
            response = self._client.send(request)
        except httpx.TransportError as error:
            raise self._not_reachable(error) from error
        if response.is_error:
            raise self._problem(response)
        if response.status_code == httpx.codes.NO_CONTENT:
            return None
        try:
            return response.json()
        except ValueError as error:
            kind = response.headers.get("Content-Type", "none")
            raise CliError(f"{request.url}: got content type {kind}, expected JSON") from error

    def _problem(self, response: httpx.Response) -> ProblemAnswer:
        try:
            problem = response.json()
        except ValueError:
            problem = None
        if not isinstance(problem, dict):
            problem = {"type": "about:blank", "title": response.reason_phrase}
        return ProblemAnswer(response.status_code, problem)

    def _not_reachable(self, error: httpx.TransportError) -> NotReachable:
        return NotReachable(f"no answer from the coordinator at {self.url}: {error}")


def parse_events(lines: Iterator[str]) -> Iterator[ServerEvent]:
    """Yield the events in the lines of a text/event-stream; comments are left out."""
    fields: dict[str, list[str]] = {}
    for line in lines:
        if not line:
            if "data" in fields:
                yield _event(fields)
            fields = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(":")
            fields.setdefault(name, []).append(value.removeprefix(" "))


def _trusted() -> ssl.SSLContext:
    # The system's certificates, as the agents trust: a hospital's own authority is among them.
    return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _event(fields: dict[str, list[str]]) -> ServerEvent:
    ids = fields.get("id")
    return ServerEvent(
        id=ids[-1] if ids else None,
        name=fields.get("event", ["message"])[-1],
        data=json.loads("\n".join(fields["data"])),
    )


def _chunks(read: Callable[[int], bytes], moved: Moved) -> Iterator[bytes]:
    while chunk := read(CHUNK_BYTES):
        yield chunk
        moved(len(chunk))
