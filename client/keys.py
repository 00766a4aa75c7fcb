"""The site's Ed25519 identity key on disk, and the lock that one agent holds on its folder.

The file holds the 32-byte seed as hex, readable by its owner only. It is made once and never
leaves the site; the coordinator knows the public key.
"""

import fcntl
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fedward.protocol.signatures import PrivateKey, new_private_key, public_bytes

from .cache import write_durably
from .errors import InvalidState, StateInUse

SEED_BYTES = 32
KEY_ID_DIGITS = 32


def load_or_create_key(file: Path, *, token_bytes: Callable[[int], bytes]) -> PrivateKey:
    """Return the key in `file`; make it where there is none. Raises as `load_key`."""
    if not file.exists():
        write_durably(file, token_bytes(SEED_BYTES).hex().encode() + b"\n", mode=0o600)
    return load_key(file)


def load_key(file: Path) -> PrivateKey:
    """Return the key in `file`.

    Raises:
        InvalidState: there is none, it is malformed, or others may read it.
    """
    if not file.exists():
        raise InvalidState(f"{file}: missing; without it this site cannot prove who it is")
    mode = file.stat().st_mode & 0o777
    if mode & 0o077:
        raise InvalidState(f"{file}: got mode {mode:o}, expected 600: others could read the key")
    try:
        seed = bytes.fromhex(file.read_text(encoding="ascii").strip())
        return new_private_key(seed)
    except ValueError as error:  # the error's text could show the seed
        raise InvalidState(f"{file}: expected {2 * SEED_BYTES} hex digits") from error


def key_id_of(public_key: bytes) -> str:
    """Return a public key's id: the first 32 hex digits of its SHA-256."""
    return hashlib.sha256(public_key).hexdigest()[:KEY_ID_DIGITS]


def key_id(key: PrivateKey) -> str:
    """Return the id under which the coordinator knows the key."""
    return key_id_of(public_bytes(key))


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the state folder, made where it is missing, for one process.

    Raises:
        StateInUse: another process holds it.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / "agent.lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StateInUse(f"{folder}: another agent is running on this folder") from error
        yield
