"""The coordinator's audit log: one canonical record per event, hashed into a Merkle tree.

A record is made once as RFC 8785 bytes; those bytes are stored and hashed. `append` is called
inside the transaction that changes the state, so that neither exists without the other. Record
`seq` (from 1) is leaf seq - 1 of the tree. Every record holds 16 random bytes (`n`), because
leaf hashes appear in proofs about other records and must not be guessable.
"""

import json
import re
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal
from uuid import UUID

from fedward.coordinator.actors import Actor
from fedward.coordinator.audit_events import DETAILS
from fedward.coordinator.context import Context
from fedward.coordinator.errors import Unavailable
from fedward.coordinator.store import log_queries
from fedward.coordinator.store.records import EventRecord, NodeRecord
from fedward.coordinator.store.unit_of_work import UnitOfWork
from fedward.coordinator.timestamps import from_timestamp, to_timestamp
from fedward.protocol import merkle
from fedward.protocol.canonical import canonical_bytes

RECORD_VERSION = 1
SOURCE = "coordinator"
_STABLE_NAME = re.compile(r"(?:round \d+: )?([a-z][a-z0-9-]*)(?::.*)?", re.DOTALL)

Outcome = Literal["success", "denied", "failure"]


@dataclass(frozen=True, slots=True)
class Subject:
    """What an event is about; `type` and `id` name the object, the rest is its place."""

    type: str | None = None
    id: str | None = None
    digest: str | None = None
    study: str | None = None
    run: str | None = None
    round: int | None = None


def append(
    context: Context,
    work: UnitOfWork,
    *,
    actor: Actor,
    action: str,
    subject: Subject = Subject(),
    outcome: Outcome = "success",
    reason: str | None = None,
    details: dict[str, Any] | None = None,
) -> int:
    """Append a record and its tree nodes; returns its number.

    Raises:
        Unavailable: `audit-unavailable`, the log is damaged; the transaction must not go on.
        ValidationError: the details are not those of the action's model (a bug of the caller).
    """
    size = log_queries.size(work.connection)
    seq, now = size + 1, context.clock()
    checked = DETAILS[action].model_validate(details or {})
    record = {
        "v": RECORD_VERSION,
        "seq": seq,
        "id": _uuid7(now, context.token_bytes(10)),
        "ts": to_timestamp(now),
        "src": SOURCE,
        "actor": _present(
            {"type": actor.type, "id": actor.id, "role": actor.role, "session": actor.session}
        ),
        "action": action,
        "outcome": outcome,
        "reason": _stable(reason),
        "object": _present({"type": subject.type, "id": subject.id, "digest": subject.digest}),
        "study": subject.study,
        "run": subject.run,
        "round": subject.round,
        "d": checked.model_dump(mode="json", exclude_none=True),
        "n": context.token_bytes(16).hex(),
    }
    _store(work, size, canonical_bytes(_present(record)))
    return seq


def _store(work: UnitOfWork, size: int, data: bytes) -> None:
    """Write a record's bytes and the tree nodes that it completes."""
    leaf = merkle.leaf_hash(data)
    try:
        nodes = merkle.new_nodes(size, leaf, partial(log_queries.node, work.connection))
    except LookupError as error:
        raise Unavailable("audit-unavailable", f"the audit log is damaged: {error}") from error
    log_queries.append(
        work.connection,
        event_record(data, leaf=leaf),
        [NodeRecord(level, index, node) for level, index, node in nodes],
    )


def event_record(data: bytes, *, leaf: bytes) -> EventRecord:
    """Return the row of a record, every column derived from its bytes."""
    parsed = json.loads(data)
    return EventRecord(
        seq=parsed["seq"],
        id=parsed["id"],
        record=data,
        leaf_hash=leaf,
        ts=from_timestamp(parsed["ts"]),
        action=parsed["action"],
        outcome=parsed["outcome"],
        actor=f"{parsed['actor']['type']}:{parsed['actor']['id']}",
        study=parsed.get("study"),
        run=parsed.get("run"),
        round=parsed.get("round"),
    )


def _uuid7(now: float, entropy: bytes) -> str:
    """Return a UUIDv7 (RFC 9562, section 5.7) of a time and 10 random bytes."""
    value = int(now * 1000).to_bytes(6, "big") + entropy
    number = int.from_bytes(value, "big")
    number = (number & ~(0xF << 76)) | (0x7 << 76)
    number = (number & ~(0x3 << 62)) | (0x2 << 62)
    return str(UUID(int=number))


def _stable(reason: str | None) -> str | None:
    """Return the stable name that a reason begins with; the rest is in the details."""
    match = _STABLE_NAME.fullmatch(reason or "")
    return match[1] if match else None


def _present(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value not in (None, {})}
