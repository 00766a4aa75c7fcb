"""Files named by the SHA-256 of their content, under the agent's state folder.

A file appears under its name complete or not at all: it is written under another name, flushed
to the disk, then renamed. What was half fetched lies under `partial/` by the digest it will
have, so that a download goes on where it was cut.
"""

import hashlib
import os
import tempfile
from collections.abc import Iterable, Set
from pathlib import Path

from typing_extensions import Buffer

from fedward.protocol.canonical import digest_hex

BLOCK_BYTES = 4 * 1024 * 1024


class BlobFolder:
    """One folder of content-addressed files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._partial = folder / "partial"
        self._partial.mkdir(parents=True, exist_ok=True)
        self._grown = True  # what an earlier process left is not known

    def path(self, digest: str) -> Path:
        """Return where the file with this digest is or would be."""
        hexadecimal = digest_hex(digest)
        return self._folder / hexadecimal[:2] / hexadecimal

    def has(self, digest: str) -> bool:
        """Say whether the file is here; it then counts as used just now."""
        path = self.path(digest)
        if not path.exists():
            return False
        os.utime(path)
        return True

    def partial(self, digest: str) -> Path:
        """Return where the first bytes of a file that is being fetched are kept."""
        self._grown = True
        return self._partial / digest_hex(digest)

    def adopt(self, file: Path, *, digest: str) -> Path:
        """Move a complete, verified file on the same disk to its name, durably."""
        self._grown = True
        target = self.path(digest)
        if target.exists():  # an app without state leaves the same file after every task
            file.unlink()
            return target
        if not target.parent.exists():
            target.parent.mkdir()
            flush_folder(self._folder)
        with file.open("rb+") as handle:
            os.fsync(handle.fileno())
        file.replace(target)
        flush_folder(target.parent)
        return target

    def put(self, pieces: Iterable[Buffer]) -> tuple[str, int]:
        """Store the concatenated pieces; return their digest and size in bytes."""
        hasher, size = hashlib.sha256(), 0
        descriptor, name = tempfile.mkstemp(dir=self._partial, prefix="put-")
        temporary = Path(name)
        with os.fdopen(descriptor, "wb") as handle:
            for piece in pieces:
                hasher.update(piece)
                handle.write(piece)
                size += memoryview(piece).nbytes
        digest = f"sha256:{hasher.hexdigest()}"
        self.adopt(temporary, digest=digest)
        return digest, size

    def take(self, file: Path) -> tuple[str, int]:
        """Move a file on the same disk here; return its digest and size in bytes."""
        with file.open("rb") as handle:
            digest = f"sha256:{hashlib.file_digest(handle, 'sha256').hexdigest()}"
        size = file.stat().st_size
        self.adopt(file, digest=digest)
        return digest, size

    def keep_only(self, digests: Set[str]) -> None:
        """Remove every complete file that `digests` does not name."""
        wanted = {digest_hex(digest) for digest in digests}
        for path in self._files():
            if path.name not in wanted:
                path.unlink()

    def shrink(self, limit_bytes: int, *, in_use: Set[str]) -> None:
        """Remove the files that were not used for longest until at most `limit_bytes` remain.

        Those of `in_use` stay in any case; of what was half fetched, only they stay. Nothing is
        looked at where nothing was added since the folder was found small enough.
        """
        if not self._grown:
            return
        wanted = {digest_hex(digest) for digest in in_use}
        for path in self._partial.iterdir():
            if path.name not in wanted:
                path.unlink()
        files = [(path.stat(), path) for path in self._files()]
        total = sum(stat.st_size for stat, _ in files)
        for stat, path in sorted(files, key=lambda item: item[0].st_mtime):
            if total <= limit_bytes:
                break
            if path.name not in wanted:
                path.unlink()
                total -= stat.st_size
        self._grown = total > limit_bytes

    def clear_partial(self) -> None:
        """Remove what was half fetched."""
        for path in self._partial.iterdir():
            path.unlink()

    def _files(self) -> list[Path]:
        return [path for path in self._folder.glob("[0-9a-f][0-9a-f]/*") if path.is_file()]


def flush_folder(folder: Path) -> None:
    """Flush a folder's entries to the disk, so that a rename in it outlasts a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_durably(file: Path, data: bytes, *, mode: int) -> None:
    """Write a small file whole or not at all, with these permission bits."""
    temporary = file.with_name(f".{file.name}.new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as handle:
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())
    temporary.replace(file)
    flush_folder(file.parent)
