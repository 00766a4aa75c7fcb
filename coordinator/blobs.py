"""Files of the coordinator: content-addressed blobs, and uploads on their way to becoming updates.

A blob is written under a temporary name, synced, renamed to its digest, and the folder synced:
whoever sees the name sees the whole content, after a crash too. Blobs never change.

An upload is `uploads/<task>-<fence>` and grows by appending; `finish` checks it against its
announced digest and moves it to `updates/<task>-<fence>-<digest>`, where nothing that arrives
later can change or remove it. An agent that was restarted goes on under its new fence with what
had arrived: the digest decides whether that was right.
"""

import hashlib
import itertools
import mmap
import os
import re
import threading
from collections.abc import Iterable
from pathlib import Path

from fedward.coordinator.errors import LimitExceeded, NotFound, OffsetMismatch, UpdateRefused
from fedward.protocol.canonical import digest_hex
from fedward.protocol.errors import InvalidArrays

_COPY_BYTES = 4 * 1024 * 1024
_UPLOAD_NAME = re.compile(r"(task-[0-9a-z]+)-(\d+)(?:-[0-9a-f]{64})?")


class Blobs:
    """The folder; `root` is the coordinator's data folder."""

    def __init__(self, root: Path) -> None:
        self._root = root / "blobs"
        self._temporary = root / "tmp"
        for folder in (self._root, self._temporary):
            folder.mkdir(parents=True, exist_ok=True)
        self._mine = os.urandom(8).hex()  # tells our temporary files from a killed process's
        self._numbers = itertools.count()
        self.uploads = Uploads(root)

    def put(self, chunks: Iterable[bytes | memoryview]) -> str:
        """Write the concatenated chunks and return their digest; durable on return."""
        temporary = self._temporary / f"{self._mine}-{next(self._numbers)}"
        hasher = hashlib.sha256()
        try:
            with temporary.open("xb") as file:
                for chunk in chunks:
                    hasher.update(chunk)
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
            digest = f"sha256:{hasher.hexdigest()}"
            target = self._path(digest)
            if not target.parent.exists():
                target.parent.mkdir(exist_ok=True)
                _sync_folder(self._root)
            temporary.replace(target)
            _sync_folder(target.parent)
        finally:
            temporary.unlink(missing_ok=True)
        return digest

    def put_file(self, source: Path) -> str:
        """Copy a file into the store and return its digest."""
        with source.open("rb") as file:
            return self.put(iter(lambda: file.read(_COPY_BYTES), b""))

    def exists(self, digest: str) -> bool:
        """Return whether the blob is there."""
        return self._path(digest).is_file()

    def path(self, digest: str) -> Path:
        """Return the blob's file, which must not be changed.

        Raises:
            NotFound: there is no such blob.
        """
        path = self._path(digest)
        if not path.is_file():
            raise NotFound("unknown-blob", f"no blob {digest}", digest=digest)
        return path

    def clean(self) -> None:
        """Remove what an earlier process left half written."""
        for path in self._temporary.iterdir():
            if not path.name.startswith(self._mine):
                path.unlink(missing_ok=True)

    def _path(self, digest: str) -> Path:
        name = digest_hex(digest)
        return self._root / name[:2] / name


class Uploads:
    """Updates that arrive in chunks. Thread-safe; one process."""

    def __init__(self, root: Path) -> None:
        self._arriving = root / "uploads"
        self._complete = root / "updates"
        for folder in (self._arriving, self._complete):
            folder.mkdir(parents=True, exist_ok=True)
        self._locks = [threading.Lock() for _ in range(64)]

    def received(self, task: str, *, fence: int) -> int:
        """Return how many bytes have arrived, those under an earlier fence included."""
        with self._lock(task):
            return self._size(task, fence)

    def append(self, task: str, *, fence: int, offset: int, data: bytes, limit_bytes: int) -> int:
        """Append `data` at `offset` and return how many bytes have arrived.

        Raises:
            OffsetMismatch: `offset` is not what has arrived.
            LimitExceeded: the upload would be larger than `limit_bytes`.
        """
        with self._lock(task):
            size = self._size(task, fence)
            if offset != size:
                raise OffsetMismatch(offset, received_bytes=size, task=task)
            got = size + len(data)
            if got > limit_bytes:
                raise LimitExceeded(
                    "update-too-large",
                    f"upload of {task}: got {got} bytes, expected at most {limit_bytes}",
                    task=task,
                )
            with self._open_name(task, fence).open("ab") as file:
                file.write(data)
            return got

    def finish(self, task: str, *, fence: int, digest: str) -> Path:
        """Check the upload's digest, make it durable and return where it is from now on.

        Raises:
            UpdateRefused: `upload-damaged`; the upload is dropped and begins anew.
        """
        with self._lock(task):
            arriving, complete = self._open_name(task, fence), self.update_path(task, fence, digest)
            if complete.exists():
                return complete
            arriving.touch()  # an update of no bytes is malformed, not missing
            got = file_digest(arriving)
            if got != digest:
                arriving.unlink()
                raise UpdateRefused(
                    "upload-damaged", f"upload of {task}: got {got}, expected {digest}", task=task
                )
            with arriving.open("rb+") as file:
                os.fsync(file.fileno())
            arriving.replace(complete)
            _sync_folder(self._complete)
            return complete

    def update_path(self, task: str, fence: int, digest: str) -> Path:
        """Return where the finished update lies."""
        return self._complete / f"{task}-{fence}-{digest_hex(digest)}"

    def discard(self, task: str) -> None:
        """Remove all that belongs to the task."""
        with self._lock(task):
            for folder in (self._arriving, self._complete):
                for path in folder.glob(f"{task}-*"):
                    path.unlink(missing_ok=True)

    def present(self) -> list[Path]:
        """Return the files that are there now."""
        return [path for folder in (self._arriving, self._complete) for path in folder.iterdir()]

    @staticmethod
    def remove_others(present: list[Path], *, wanted: set[str]) -> None:
        """Remove those of the files that belong to none of the wanted tasks.

        List the files before you find out what is wanted: an upload that begins in between is
        not among them.
        """
        for path in present:
            named = _UPLOAD_NAME.fullmatch(path.name)
            if named is None or named[1] not in wanted:
                path.unlink(missing_ok=True)

    def _size(self, task: str, fence: int) -> int:
        arriving = self._open_name(task, fence)
        if arriving.exists():
            return arriving.stat().st_size
        for path in self._complete.glob(f"{task}-{fence}-*"):
            return path.stat().st_size
        return self._adopt(task, fence)

    def _adopt(self, task: str, fence: int) -> int:
        """Take over what arrived under the newest earlier fence; returns its size."""
        earlier = [
            (int(named[2]), path)
            for folder in (self._complete, self._arriving)
            for path in folder.glob(f"{task}-*")
            if (named := _UPLOAD_NAME.fullmatch(path.name)) and int(named[2]) < fence
        ]
        if not earlier:
            return 0
        _, newest = max(earlier)
        return newest.replace(self._open_name(task, fence)).stat().st_size

    def _open_name(self, task: str, fence: int) -> Path:
        return self._arriving / f"{task}-{fence}"

    def _lock(self, task: str) -> threading.Lock:
        return self._locks[hash(task) % len(self._locks)]


def file_digest(path: Path) -> str:
    """Return the digest of a file's content."""
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def map_file(path: Path) -> memoryview:
    """Map a file for reading; it stays mapped as long as the view or arrays on it live.

    Raises:
        InvalidArrays: the file is empty.
    """
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            raise InvalidArrays("got an empty file, expected arrays")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
