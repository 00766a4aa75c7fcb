"""What agent and coordinator say to each other, each call repeated until it is answered.

A call that gets no believable answer is made again for ever, with growing waits; every attempt
is signed anew. A transfer goes on at the byte where it was cut: a download by the length of the
partial file, an upload by what the coordinator says it has. An upload of one chunk is sent without
asking first: where that was wrong, the refusal names the right byte.
"""

import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
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
_NEVER = frozenset({400, 413, 415, 422})
"""Refusals of an upload that are about the bytes, not about the task or the moment."""
_log = logging.getLogger(__name__)
_T = TypeVar("_T")
_D = TypeVar("_D", bound=Document)


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
        self._connected = False

    async def next_task(self, *, wait_s: float) -> Task | None:
        """Ask for work; None where there was none within `wait_s`.

        Without a connection nothing is waited for: the answer shows that there is one.
        """
        wait_s = wait_s if self._connected else 0.0

        def read(answer: Answer) -> Task | None:
            return None if answer.status == 204 else _document(Task, answer)

        return await self._call(read, "GET", f"/agent/v1/next?wait={wait_s:g}", wait_s=wait_s)

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

        A refusal of the moment is not raised: the answer to the result tells its reason.

        Raises:
            CallRefused: the coordinator will not take these bytes at any time.
        """
        offset = 0 if size_bytes <= CHUNK_BYTES else await self._upload_offset(task)
        with file.open("rb") as source:
            while offset is not None and offset < size_bytes:
                source.seek(offset)
                offset = await self._send_chunk(task, offset, source.read(CHUNK_BYTES))

    async def submit(self, task: Task, body: bytes) -> ResultReceipt:
        """Send a TaskResult until it is answered; a repeat is answered as the first was.

        Raises:
            CallRefused: the coordinator does not take an answer to this task at all.
        """
        read = partial(_document, ResultReceipt)
        return await self._call(read, "POST", f"/agent/v1/tasks/{task.task}/result", body=body)

    async def _fetch_chunk(self, digest: str, offset: int) -> tuple[bytes, int]:
        """Return the bytes from `offset` on, at most a chunk, and the blob's size."""
        read = partial(_piece, offset=offset)
        wanted = {"range": f"bytes={offset}-{offset + CHUNK_BYTES - 1}"}
        try:
            return await self._call(read, "GET", f"/agent/v1/blobs/{digest}", headers=wanted)
        except CallRefused as refused:
            if refused.problem.status == 416:  # nothing after `offset`
                return b"", offset
            raise

    async def _upload_offset(self, task: Task) -> int | None:
        def read(answer: Answer) -> int:
            return _number(answer.headers.get("upload-offset", ""), "upload-offset")

        headers = {"upload-fence": str(task.fence)}
        try:
            return await self._call(read, "HEAD", f"/agent/v1/uploads/{task.task}", headers=headers)
        except CallRefused:
            return None

    async def _send_chunk(self, task: Task, offset: int, chunk: bytes) -> int | None:
        """Send one chunk; return where to go on, or None where the upload is refused."""
        read = partial(_document, UploadState)
        headers = {
            "content-type": "application/octet-stream",
            "upload-offset": str(offset),
            "upload-fence": str(task.fence),
        }
        try:
            state = await self._call(
                read, "PUT", f"/agent/v1/uploads/{task.task}", body=chunk, headers=headers
            )
        except CallRefused as refused:
            if refused.problem.status in _NEVER:
                raise
            # after a cut the chunk may have arrived although its answer did not
            expected = refused.problem.expected if refused.name == "offset-mismatch" else None
            return expected if isinstance(expected, int) and 0 <= expected != offset else None
        return state.received_bytes if state.received_bytes > offset else None

    async def _call(
        self,
        read: Callable[[Answer], _T],
        method: str,
        target: str,
        *,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        wait_s: float = 0.0,
    ) -> _T:
        """Make one call until its answer can be believed and read; return what `read` makes of it.

        Raises:
            CallRefused: a signed refusal.
        """
        failures = 0
        while True:
            try:
                answer = await self._transport.call(
                    method,
                    target,
                    trusted_key=self._key,
                    body=body,
                    headers=headers,
                    wait_s=wait_s,
                )
                found = read(answer)
            except ConnectionFailed as error:
                self._connected = False
                failures += 1
                pause_s = self._backoff.delay_s(failures)
                if isinstance(error, Unreachable):
                    pause_s = max(pause_s, error.retry_after_s)
                _log.warning("%s; attempt %d, again in %.1f s", error, failures, pause_s)
                await self._sleep(pause_s)
            else:
                self._tell_connected()
                return found

    def _tell_connected(self) -> None:
        if not self._connected:
            _log.info("connected to the coordinator at %s", self._transport.address)
        self._connected = True


def _document(kind: type[_D], answer: Answer) -> _D:
    try:
        return kind.model_validate_json(answer.body)
    except ValidationError as error:
        count = error.error_count()
        raise UntrustedAnswer(f"got no {kind.__name__}: {count} fields are wrong") from error


def _piece(answer: Answer, *, offset: int) -> tuple[bytes, int]:
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
