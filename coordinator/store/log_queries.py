"""The audit log's rows and tree nodes."""

from collections.abc import Iterator

from sqlalchemy import Connection, func, select
from sqlalchemy.exc import IntegrityError

from fedward.coordinator.errors import Unavailable
from fedward.coordinator.store import tables as t
from fedward.coordinator.store.records import EventRecord, NodeRecord
from fedward.coordinator.store.rows import add, fetch


def size(connection: Connection) -> int:
    """Return the number of records."""
    newest = select(func.coalesce(func.max(t.audit_events.c.seq), 0))
    count: int = connection.execute(newest).scalar_one()
    return count


def node(connection: Connection, level: int, index: int) -> bytes:
    """Return a node's hash.

    Raises:
        LookupError: it is not stored.
    """
    n = t.audit_nodes.c
    found: bytes | None = connection.execute(
        select(n.hash).where(n.level == level, n.idx == index)
    ).scalar_one_or_none()
    if found is None:
        raise LookupError(f"audit_nodes: no node ({level}, {index})")
    return found


def append(connection: Connection, event: EventRecord, nodes: list[NodeRecord]) -> None:
    """Insert a record and the nodes that it completes.

    Raises:
        Unavailable: the tables do not take it: somebody has changed them.
    """
    try:
        add(connection, event)
        add(connection, *nodes)
    except IntegrityError as error:
        raise Unavailable(
            "audit-unavailable", f"the audit log does not take record {event.seq}"
        ) from error


def events_after(
    connection: Connection, seq: int, *, limit: int, run: str | None = None
) -> list[EventRecord]:
    """Return records in order, those above `seq`."""
    e = t.audit_events.c
    query = select(t.audit_events).where(e.seq > seq).order_by(e.seq).limit(limit)
    return fetch(connection, EventRecord, query if run is None else query.where(e.run == run))


def all_events(connection: Connection) -> Iterator[EventRecord]:
    """Yield every record in order, some at a time."""
    seq = None
    while True:
        query = select(t.audit_events).order_by(t.audit_events.c.seq).limit(1000)
        found = fetch(
            connection,
            EventRecord,
            query if seq is None else query.where(t.audit_events.c.seq > seq),
        )
        if not found:
            return
        yield from found
        seq = found[-1].seq


def count_nodes(connection: Connection) -> int:
    """Return the number of stored nodes."""
    return connection.execute(select(func.count()).select_from(t.audit_nodes)).scalar_one()


def newest(connection: Connection) -> EventRecord | None:
    """Return the newest record."""
    query = select(t.audit_events).order_by(t.audit_events.c.seq.desc()).limit(1)
    found = fetch(connection, EventRecord, query)
    return found[0] if found else None
