"""Reading, proving and checking the audit log."""

import json
from functools import partial

from fedward.coordinator import audit, views
from fedward.coordinator.actors import Actor
from fedward.coordinator.context import Context
from fedward.coordinator.errors import InvalidInput, NotFound
from fedward.coordinator.paging import checked_limit
from fedward.coordinator.store import log_queries, rows
from fedward.coordinator.store.records import EventRecord, RunRecord
from fedward.coordinator.store.unit_of_work import Snapshot
from fedward.protocol import merkle
from fedward.protocol.canonical import canonical_bytes
from fedward.protocol.errors import InvalidDocument
from fedward.protocol.records import Subject


def events(
    context: Context, actor: Actor, *, after_seq: int, limit: int, run: str | None
) -> list[views.AuditEventView]:
    """Return records in order and record that they were read."""
    with context.store.transaction() as work:
        found = log_queries.events_after(
            work.connection, after_seq, limit=checked_limit(limit), run=run
        )
        audit.append(
            context,
            work,
            actor=actor,
            action="audit.read",
            subject=Subject(run=run),
            details={"after_seq": after_seq, "count": len(found)},
        )
    return [_view(event) for event in found]


def run_events(
    context: Context, run: str, *, after_seq: int, limit: int
) -> list[views.AuditEventView]:
    """Return a run's records for a progress stream, without recording the read."""
    with context.store.reading() as connection:
        if rows.get(connection, RunRecord, run) is None:
            raise NotFound("unknown-run", f"no run {run}", run=run)
        found = log_queries.events_after(connection, after_seq, limit=checked_limit(limit), run=run)
    return [_view(event) for event in found]


def head(context: Context) -> views.AuditHead:
    """Return the size and root of the log."""
    with context.store.reading() as connection:
        size = log_queries.size(connection)
        root = merkle.root(size, partial(log_queries.node, connection))
    return views.AuditHead(size=size, root=root.hex())


def inclusion(context: Context, seq: int, *, size: int | None) -> views.InclusionProof:
    """Prove that record `seq` is in the tree."""
    with context.store.reading() as connection:
        size = _size(connection, size)
        if not 1 <= seq <= size:
            raise NotFound("unknown-record", f"record {seq}: expected 1 to {size}", seq=str(seq))
        read = partial(log_queries.node, connection)
        return views.InclusionProof(
            seq=seq,
            size=size,
            leaf_hash=read(0, seq - 1).hex(),
            root=merkle.root(size, read).hex(),
            proof=[part.hex() for part in merkle.inclusion_proof(seq - 1, size, read)],
        )


def consistency(context: Context, first: int, *, second: int | None) -> views.ConsistencyProof:
    """Prove that one tree is a prefix of the other."""
    with context.store.reading() as connection:
        second = _size(connection, second)
        if not 0 <= first <= second:
            raise InvalidInput(
                "invalid-size", f"first: got {first}, expected 0 to {second} (second)"
            )
        read = partial(log_queries.node, connection)
        return views.ConsistencyProof(
            first=first,
            second=second,
            first_root=merkle.root(first, read).hex(),
            second_root=merkle.root(second, read).hex(),
            proof=[part.hex() for part in merkle.consistency_proof(first, second, read)],
        )


def verify(context: Context) -> views.AuditCheck:
    """Recompute the log from its bytes and compare every column and node with the result."""
    with context.store.reading() as connection:
        nodes: dict[tuple[int, int], bytes] = {}
        size = 0
        for event in log_queries.all_events(connection):
            problem = _problem_of(event, expected_seq=size + 1) or _add_leaf(
                connection, nodes, event.leaf_hash, size
            )
            if problem:
                return views.AuditCheck(
                    ok=False,
                    size=log_queries.size(connection),
                    root=_root(nodes, size).hex(),
                    first_bad_seq=event.seq,
                    problem=problem,
                )
            size += 1
        root, extra = _root(nodes, size).hex(), log_queries.count_nodes(connection) - _count(size)
    if extra:
        problem = f"the tree has {extra} nodes more than {size} records make"
        return views.AuditCheck(ok=False, size=size, root=root, problem=problem)
    return views.AuditCheck(ok=True, size=size, root=root)


def _problem_of(event: EventRecord, *, expected_seq: int) -> str | None:
    if event.seq != expected_seq:
        return f"expected record {expected_seq}, got {event.seq}"
    record: object = event.record  # SQLite keeps what it is given, whatever the column's type
    if not isinstance(record, bytes):
        return f"the record is {type(record).__name__}, not bytes"
    leaf = merkle.leaf_hash(record)
    if leaf != event.leaf_hash:
        return "the bytes do not have the stored hash"
    try:
        canonical = canonical_bytes(json.loads(event.record)) == event.record
        derived = audit.event_record(event.record, leaf=leaf)
    except (ValueError, KeyError, TypeError, InvalidDocument):
        return "the bytes are no record"
    if not canonical:
        return "the bytes are not canonical"
    return None if derived == event else "a column differs from the bytes"


def _add_leaf(
    connection: Snapshot, nodes: dict[tuple[int, int], bytes], leaf: bytes, size: int
) -> str | None:
    """Add a leaf to the recomputed tree and compare the nodes that it completes."""
    for level, index, value in merkle.new_nodes(size, leaf, lambda *key: nodes[key]):
        try:
            stored = log_queries.node(connection, level, index)
        except LookupError:
            return f"node ({level}, {index}) is missing"
        if stored != value:
            return f"node ({level}, {index}) is not the hash of its leaves"
        for child in (2 * index, 2 * index + 1):
            nodes.pop((level - 1, child), None)  # its parent stands for it from now on
        nodes[level, index] = value
    return None


def _root(nodes: dict[tuple[int, int], bytes], size: int) -> bytes:
    return merkle.root(size, lambda *key: nodes[key])


def _count(size: int) -> int:
    """Return how many complete subtrees a tree of `size` leaves has."""
    return sum(size >> level for level in range(size.bit_length()))


def _size(connection: Snapshot, wanted: int | None) -> int:
    newest = log_queries.size(connection)
    if wanted is None:
        return newest
    if not 0 <= wanted <= newest:
        raise InvalidInput("invalid-size", f"size: got {wanted}, expected 0 to {newest}")
    return wanted


def _view(event: EventRecord) -> views.AuditEventView:
    return views.AuditEventView(
        seq=event.seq,
        id=event.id,
        leaf_hash=event.leaf_hash.hex(),
        record=json.loads(event.record),
    )
