"""The form of an audit record, the same at the coordinator and at every site.

A record is made once as RFC 8785 bytes; those bytes are stored, hashed and handed out. Numbers
that a reader may not represent exactly are texts. What a record may say about an action is
decided by the catalogue of the log's owner; where it is stored, by its shell.
"""

from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from fedward.protocol.canonical import canonical_bytes
from fedward.protocol.timestamps import to_timestamp

RECORD_VERSION = 1
ENTROPY_BYTES = 26
"""10 for the record's id, 16 for `n`."""

Outcome = Literal["success", "denied", "failure"]


@dataclass(frozen=True, slots=True)
class Subject:
    """What an event is about; `type`, `id` and `digest` name the object, the rest is its place."""

    type: str | None = None
    id: str | None = None
    digest: str | None = None
    study: str | None = None
    run: str | None = None
    round: int | None = None


NOTHING = Subject()
"""The subject of an event that is about nothing but its actor."""


def record_bytes(
    *,
    seq: int,
    now: float,
    source: str,
    actor: dict[str, Any],
    action: str,
    outcome: Outcome,
    reason: str | None,
    subject: Subject,
    details: dict[str, Any],
    entropy: bytes,
    policy: str | None = None,
) -> bytes:
    """Return the canonical bytes of a record; what is None or empty is left out.

    Args:
        seq: the record's number, from 1; it is leaf `seq - 1` of the tree.
        now: seconds since the epoch.
        entropy: ENTROPY_BYTES secret random bytes. 16 of them stand in the record, because leaf
            hashes appear in proofs about other records and must not be guessable.
    """
    if len(entropy) != ENTROPY_BYTES:
        raise ValueError(f"entropy: got {len(entropy)} bytes, expected {ENTROPY_BYTES}")
    record = {
        "v": RECORD_VERSION,
        "seq": seq,
        "id": uuid7(now, entropy=entropy[:10]),
        "ts": to_timestamp(now),
        "src": source,
        "actor": _present(actor),
        "action": action,
        "outcome": outcome,
        "reason": reason,
        "object": _present({"type": subject.type, "id": subject.id, "digest": subject.digest}),
        "study": subject.study,
        "run": subject.run,
        "round": subject.round,
        "policy": policy,
        "d": details,
        "n": entropy[10:].hex(),
    }
    return canonical_bytes(_present(record))


def uuid7(now: float, *, entropy: bytes) -> str:
    """Return the UUIDv7 (RFC 9562, section 5.7) of a time in seconds and 10 random bytes."""
    number = int.from_bytes(int(now * 1000).to_bytes(6, "big") + entropy, "big")
    number = (number & ~(0xF << 76)) | (0x7 << 76)
    number = (number & ~(0x3 << 62)) | (0x2 << 62)
    return str(UUID(int=number))


def _present(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value not in (None, {})}
