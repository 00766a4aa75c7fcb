"""The coordinator's audit log: one canonical record per event, hashed into a Merkle tree.

A record is made once as RFC 8785 bytes; those bytes are stored and hashed. `append` is called
inside the transaction that changes the state, so that neither exists without the other. Record
`seq` (from 1) is leaf seq - 1 of the tree. Every record holds 16 random bytes (`n`), because
leaf hashes appear in proofs about other records and must not be guessable.
"""

import json
import re
from functools import partial
from typing import Any

from fedward.coordinator.actors import Actor
from fedward.coordinator.audit_events import DETAILS
from fedward.coordinator.context import Context
from fedward.coordinator.errors import Unavailable
from fedward.coordinator.store import log_queries
from fedward.coordinator.store.records import EventRecord, NodeRecord
from fedward.coordinator.store.unit_of_work import UnitOfWork
from fedward.protocol import merkle
from fedward.protocol.records import ENTROPY_BYTES, NOTHING, Outcome, Subject, record_bytes
from fedward.protocol.timestamps import from_timestamp

SOURCE = "coordinator"
_STABLE_NAME = re.compile(r"(?:round \d+: )?([a-z][a-z0-9-]*)(?::.*)?", re.DOTALL)


def append(
    context: Context,
    work: UnitOfWork,
    *,
    actor: Actor,
    action: str,
    subject: Subject = NOTHING,
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
    checked = DETAILS[action].model_validate(details or {})
    data = record_bytes(
        seq=size + 1,
        now=context.clock(),
        source=SOURCE,
        actor={"type": actor.type, "id": actor.id, "role": actor.role, "session": actor.session},
        action=action,
        outcome=outcome,
        reason=_stable(reason),
        subject=subject,
        details=checked.model_dump(mode="json", exclude_none=True),
        entropy=context.token_bytes(ENTROPY_BYTES),
    )
    _store(work, size, data)
    return size + 1


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


def _stable(reason: str | None) -> str | None:
    """Return the stable name that a reason begins with; the rest is in the details."""
    match = _STABLE_NAME.fullmatch(reason or "")
    return match[1] if match else None
