"""The coordinator's Ed25519 key on disk, made at the first start.

The file holds the 32 byte seed as hex, readable by the owner only. It is never replaced: agents
pin its public key when they enrol. The caller holds the folder's lock.
"""

import os
from collections.abc import Callable
from pathlib import Path

from fedward.coordinator.errors import CoordinatorError

SEED_BYTES = 32


class InvalidKey(CoordinatorError):
    """The key file cannot be trusted: malformed, or readable by others."""

    def __init__(self, detail: str) -> None:
        super().__init__("invalid-key", detail)


def load_or_create_seed(path: Path, *, token_bytes: Callable[[int], bytes]) -> bytes:
    """Return the seed of the key at `path`; make it if there is none.

    Args:
        token_bytes: source of secret random bytes, as `secrets.token_bytes`.

    Raises:
        InvalidKey: the file is malformed, or its mode allows others to read it.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists():
        _create(path, token_bytes(SEED_BYTES))
    mode = path.stat().st_mode & 0o777
    if mode & 0o077:
        raise InvalidKey(f"{path}: got mode {mode:o}, expected 600; others could read the key")
    try:
        seed = bytes.fromhex(path.read_text(encoding="ascii").strip())
    except (ValueError, UnicodeDecodeError) as error:
        raise InvalidKey(f"{path}: expected {2 * SEED_BYTES} hex digits") from error
    if len(seed) != SEED_BYTES:
        raise InvalidKey(f"{path}: got {len(seed)} bytes, expected {SEED_BYTES}")
    return seed


def _create(path: Path, seed: bytes) -> None:
    """Write under a temporary name, then rename: a crash leaves no half key."""
    scratch = path.with_name(f"{path.name}.new")
    scratch.unlink(missing_ok=True)
    handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(seed.hex() + "\n")
        file.flush()
        os.fsync(file.fileno())
    scratch.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
