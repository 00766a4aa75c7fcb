"""The site's own append-only audit log: RFC 8785 records under a Merkle tree of RFC 9162.

The same record form as the coordinator's (shared terms: v, seq, id, ts, src, actor, action,
outcome, reason, object, study, run, round, policy, d, n). `append` runs inside the caller's
transaction, so a record and what it is about are committed together or not at all.

Tamper-evident, not tamper-proof: who owns the file can replace the whole log; a head that was
shown to somebody else then no longer fits.
"""

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fedward.protocol import merkle
from fedward.protocol.records import ENTROPY_BYTES, NOTHING, Outcome, Subject, record_bytes

from .audit_events import EventDetails
from .errors import AuditBroken

SCHEMA = """
CREATE TABLE audit_events (
  seq INTEGER PRIMARY KEY,
  action TEXT NOT NULL,
  run TEXT,
  bytes BLOB NOT NULL
) STRICT;
CREATE TABLE audit_nodes (
  level INTEGER NOT NULL,
  idx INTEGER NOT NULL,
  hash BLOB NOT NULL,
  PRIMARY KEY (level, idx)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER audit_events_no_update BEFORE UPDATE ON audit_events
  BEGIN SELECT RAISE(ABORT, 'audit_events is append-only'); END;
CREATE TRIGGER audit_events_no_delete BEFORE DELETE ON audit_events
  BEGIN SELECT RAISE(ABORT, 'audit_events is append-only'); END;
CREATE TRIGGER audit_nodes_no_update BEFORE UPDATE ON audit_nodes
  BEGIN SELECT RAISE(ABORT, 'audit_nodes is append-only'); END;
CREATE TRIGGER audit_nodes_no_delete BEFORE DELETE ON audit_nodes
  BEGIN SELECT RAISE(ABORT, 'audit_nodes is append-only'); END;
-- INSERT OR REPLACE bypasses the triggers above; an append has the next number, or is none
CREATE TRIGGER audit_events_in_order BEFORE INSERT ON audit_events
  WHEN NEW.seq <> (SELECT coalesce(max(seq), 0) + 1 FROM audit_events)
  BEGIN SELECT RAISE(ABORT, 'audit_events: seq is not the next number'); END;
CREATE TRIGGER audit_nodes_once BEFORE INSERT ON audit_nodes
  WHEN EXISTS (SELECT 1 FROM audit_nodes WHERE level = NEW.level AND idx = NEW.idx)
  BEGIN SELECT RAISE(ABORT, 'audit_nodes is append-only'); END;
"""


@dataclass(frozen=True, slots=True)
class Event:
    """What happened; the subject's id is a task, `reason` a stable name."""

    details: EventDetails
    outcome: Outcome = "success"
    reason: str | None = None
    subject: Subject = NOTHING


@dataclass(frozen=True, slots=True)
class Head:
    """The size of the log and the root over it, hex."""

    size: int
    root: str


class AuditLog:
    """Appends to and verifies the log in `connection`'s database."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        *,
        site: str,
        policy: str | None,
        token_bytes: Callable[[int], bytes],
    ) -> None:
        self._connection = connection
        self._site = site
        self._policy = policy
        self._token_bytes = token_bytes

    def append(self, event: Event, *, now: float) -> None:
        """Write one record inside the open transaction."""
        if not self._connection.in_transaction:
            raise ValueError("an audit record is written inside a transaction")
        size = self._size()
        data = record_bytes(
            seq=size + 1,
            now=now,
            source=f"site:{self._site}",
            actor={"type": "agent", "id": self._site},
            action=event.details.ACTION,
            outcome=event.outcome,
            reason=event.reason,
            subject=event.subject,
            details=event.details.model_dump(mode="json", exclude_none=True),
            entropy=self._token_bytes(ENTROPY_BYTES),
            policy=self._policy,
        )
        self._connection.execute(
            "INSERT INTO audit_events (seq, action, run, bytes) VALUES (?, ?, ?, ?)",
            (size + 1, event.details.ACTION, event.subject.run, data),
        )
        nodes = merkle.new_nodes(size, merkle.leaf_hash(data), self._read)
        self._connection.executemany("INSERT INTO audit_nodes VALUES (?, ?, ?)", nodes)

    def head(self) -> Head:
        """Return size and root of the whole log."""
        size = self._size()
        return Head(size, merkle.root(size, self._read).hex())

    def records(self) -> Iterator[bytes]:
        """Yield the stored bytes of each record, in order."""
        for (data,) in self._connection.execute("SELECT bytes FROM audit_events ORDER BY seq"):
            yield bytes(data)

    def verify(self) -> Head:
        """Recompute the whole tree from the stored bytes.

        Raises:
            AuditBroken: a record or node is missing or changed; names the first.
        """
        rows = self._connection.execute("SELECT seq, bytes FROM audit_events ORDER BY seq")
        for size, (seq, data) in enumerate(rows):
            if seq != size + 1:
                raise AuditBroken(f"audit log: got record {seq}, expected {size + 1}")
            for level, index, value in merkle.new_nodes(
                size, merkle.leaf_hash(bytes(data)), self._read
            ):
                if self._read(level, index) != value:
                    raise AuditBroken(
                        f"audit log: record {seq} does not fit node ({level}, {index})"
                    )
        self._check_no_more_nodes()
        return self.head()

    def _check_no_more_nodes(self) -> None:
        """A tree of n leaves has 2n - (ones in n) complete subtrees; more: records were cut off."""
        size = self._size()
        expected = 2 * size - size.bit_count()
        (got,) = self._connection.execute("SELECT count(*) FROM audit_nodes").fetchone()
        if got != expected:
            raise AuditBroken(f"audit log: got {got} nodes, expected {expected} for {size} records")

    def _size(self) -> int:
        row = self._connection.execute("SELECT coalesce(max(seq), 0) FROM audit_events").fetchone()
        return int(row[0])

    def _read(self, level: int, index: int, /) -> bytes:
        row = self._connection.execute(
            "SELECT hash FROM audit_nodes WHERE level = ? AND idx = ?", (level, index)
        ).fetchone()
        if row is None:
            raise AuditBroken(f"audit log: node ({level}, {index}) is missing")
        return bytes(row[0])
