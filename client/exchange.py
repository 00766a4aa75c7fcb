"""What agent and coordinator say to each other, each call repeated until it is answered.

A call that gets no believable answer is made again for ever, with growing waits; every attempt
is signed anew. A transfer goes on at the byte where it was cut: a download by the length of the
partial file, an upload by what the coordinator says it has.
"""

import hashlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from fedward.protocol.canonical import digest_hex
from fedward.protocol.documents import Document, ResultReceipt, Task, UploadState

from .backoff import Backoff
from .cache import BLOCK_BYTES, BlobFolder
from .errors import CallRefused, ConnectionFailed, CorruptDownload, Unreachable, UntrustedAnswer
from .transport import Answer, Transport

CHUNK_BYTES = BLOCK_BYTES
_log = logging.getLogger(__name__)
_T = TypeVar("_T")
_D = TypeVar("_D", bound=Document)


@dataclass(slots=True)
class Traffic:
    """Bytes of arrays, plans and bundles that were moved since the start."""

    up: int = 0
    down: int = 0


class Exchange:
    """The coordinator as the agent sees it; `sleep` waits for seconds."""

    def __init__(
        self,
        transport: Transport,
        *,
        coordinator_key: bytes,
        backoff: Backoff,
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._transport = transport
        self._key = coordinator_key
        self._backoff = backoff
        self._sleep = sleep
        self.traffic = Traffic()

    async def next_task(self, *, wait_s: float) -> Task | None:
        """Ask for work; None where there was none within `wait_s`."""

        async def ask() -> Task | None:
            answer = await self._transport.call(
                "GET", f"/agent/v1/next?wait={wait_s:g}", trusted_key=self._key, wait_s=wait_s
            )
            return None if answer.status == 204 else _document(Task, answer)

        return await self._until_answered(ask)

    async def progress(self, task: Task) -> None:
        """Say once that the task is being worked on.

        Raises:
            ConnectionFailed: not answered; the next heartbeat may be.
            CallRefused: the task is no longer wanted from this site.
        """
        await self._transport.call(
            "POST",
            f"/agent/v1/tasks/{task.task}/progress",
            trusted_key=self._key,
            body=b'{"fence":%d}' % task.fence,
        )

    async def fetch(self, digest: str, folder: BlobFolder, *, limit_bytes: int) -> Path:
        """Return the file with this digest, fetched unless it is in `folder` already.

        Raises:
            CorruptDownload: other bytes arrived than the digest says, or more than the limit.
            CallRefused: the coordinator does not have it for this site.
        """
        if folder.has(digest):
            return folder.path(digest)
        partial = folder.partial(digest)
        partial.touch()
        hasher = hashlib.sha256()
        with partial.open("rb+") as file:
            while block := file.read(BLOCK_BYTES):
                hasher.update(block)
            while hasher.hexdigest() != digest_hex(digest):
                offset = file.tell()
                chunk, total = await self._fetch_chunk(digest, offset)
                if not chunk or max(total, offset + len(chunk)) > limit_bytes:
                    break
                file.write(chunk)
                hasher.update(chunk)
        if hasher.hexdigest() != digest_hex(digest):
            partial.unlink()
            raise CorruptDownload(
                f"blob {digest}: got other bytes, or more than {limit_bytes}, at {offset}"
            )
        return folder.adopt(partial, digest=digest)

    async def upload(self, task: Task, file: Path, *, size_bytes: int) -> None:
        """Send the file from the byte on that the coordinator does not have yet.

        A refusal is not raised: the answer to the result tells its reason.
        """
        offset = await self._upload_offset(task)
        with file.open("rb") as source:
            while offset is not None and offset < size_bytes:
                source.seek(offset)
                offset = await self._send_chunk(task, offset, source.read(CHUNK_BYTES))

    async def submit(self, task: Task, body: bytes) -> ResultReceipt:
        """Send a TaskResult until it is answered; a repeat is answered as the first was.

        Raises:
            CallRefused: the coordinator does not take an answer to this task at all.
        """

        async def send() -> ResultReceipt:
            answer = await self._transport.call(
                "POST",
                f"/agent/v1/tasks/{task.task}/result",
                trusted_key=self._key,
                body=body,
            )
            return _document(ResultReceipt, answer)

        return await self._until_answered(send)

    async def _fetch_chunk(self, digest: str, offset: int) -> tuple[bytes, int]:
        """Return the bytes from `offset` on, at most a chunk, and the blob's size."""
        last = offset + CHUNK_BYTES - 1

        async def ask() -> tuple[bytes, int]:
            answer = await self._transport.call(
                "GET",
                f"/agent/v1/blobs/{digest}",
                trusted_key=self._key,
                headers={"range": f"bytes={offset}-{last}"},
            )
            return _piece(answer, offset)

        try:
            chunk, total = await self._until_answered(ask)
        except CallRefused as refused:
            if refused.problem.status == 416:  # nothing after `offset`
                return b"", offset
            raise
        self.traffic.down += len(chunk)
        return chunk, total

    async def _upload_offset(self, task: Task) -> int | None:
        async def ask() -> int:
            answer = await self._transport.call(
                "HEAD",
                f"/agent/v1/uploads/{task.task}",
                trusted_key=self._key,
                headers={"upload-fence": str(task.fence)},
            )
            return _number(answer.headers.get("upload-offset", ""), "upload-offset")

        try:
            return await self._until_answered(ask)
        except CallRefused:
            return None

    async def _send_chunk(self, task: Task, offset: int, chunk: bytes) -> int | None:
        """Send one chunk; return where to go on, or None where the upload is refused."""

        async def send() -> int:
            answer = await self._transport.call(
                "PUT",
                f"/agent/v1/uploads/{task.task}",
                trusted_key=self._key,
                body=chunk,
                headers={
                    "content-type": "application/octet-stream",
                    "upload-offset": str(offset),
                    "upload-fence": str(task.fence),
                },
            )
            return _document(UploadState, answer).received_bytes

        try:
            received = await self._until_answered(send)
        except CallRefused as refused:
            # after a cut the chunk may have arrived although its answer did not
            expected = await self._upload_offset(task) if refused.problem.status == 409 else None
            return None if expected == offset else expected
        self.traffic.up += len(chunk)
        return received if received > offset else None

    async def _until_answered(self, call: Callable[[], Awaitable[_T]]) -> _T:
        failures = 0
        while True:
            try:
                return await call()
            except ConnectionFailed as error:
                failures += 1
                wait_s = self._backoff.delay_s(failures)
                if isinstance(error, Unreachable):
                    wait_s = max(wait_s, error.retry_after_s)
                _log.warning("%s; attempt %d, again in %.1f s", error, failures, wait_s)
                await self._sleep(wait_s)


def _document(kind: type[_D], answer: Answer) -> _D:
    try:
        return kind.model_validate_json(answer.body)
    except ValidationError as error:
        count = error.error_count()
        raise UntrustedAnswer(f"got no {kind.__name__}: {count} fields are wrong") from error


def _piece(answer: Answer, offset: int) -> tuple[bytes, int]:
    if answer.status == 200:  # the whole of a small blob
        return answer.body[offset:], len(answer.body)
    unit, _, rest = answer.headers.get("content-range", "").partition(" ")
    span, _, total = rest.partition("/")
    first = span.partition("-")[0]
    if unit != "bytes" or _number(first, "content-range") != offset:
        raise UntrustedAnswer(f"got content-range {unit} {rest}, expected bytes {offset}-")
    return answer.body, _number(total, "content-range")


def _number(text: str, header: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise UntrustedAnswer(f"{header}: got {text!r}, expected a number")
    return int(text)
