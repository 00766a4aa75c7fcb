"""What the agent has received, finished and delivered; it survives `kill -9` at any moment.

Task   received -> finished -> settled.
       `received`: leased; nothing worth keeping was done yet: after a crash it is done again.
       `finished`: the answer is stored (its arrays in the `kept` folder); never trained again,
       sent until the coordinator answers. `settled`: the coordinator has answered, or no
       longer wants the task; its update is not kept any more.
Run    the app's `context.state` and the arrays that stay here, both as digests of kept files.

`finish` writes the answer, the run's new state and the audit record in one transaction: a crash
leaves all of them or none. Files are written before the transaction that names them; those that
no row names are removed later (`referenced`).
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from fedward.protocol.documents import Membership, ResultReceipt, Task, TaskResult
from fedward.protocol.records import Outcome, Subject

from . import audit
from .audit import AuditLog, Event
from .audit_events import (
    AgentEnrolled,
    EgressSettled,
    EventDetails,
    TaskFailedHere,
    TaskFinished,
    TaskGone,
    TaskReceived,
)
from .errors import InvalidState, NotEnrolled

FORMAT = 1
"""Stored as the database's user_version."""

_SCHEMA = """
CREATE TABLE membership (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  coordinator TEXT NOT NULL,
  document TEXT NOT NULL
) STRICT;
CREATE TABLE tasks (
  task TEXT PRIMARY KEY,
  run TEXT NOT NULL,
  kind TEXT NOT NULL,
  fence INTEGER NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('received', 'finished', 'settled')),
  result TEXT,
  update_digest TEXT,
  receipt TEXT,
  received_at REAL NOT NULL,
  changed_at REAL NOT NULL
) STRICT;
CREATE TABLE runs (
  run TEXT PRIMARY KEY,
  context TEXT,
  local TEXT,
  changed_at REAL NOT NULL
) STRICT;
"""


@dataclass(frozen=True, slots=True)
class RunFiles:
    """Digests of the run's kept files: the app's state and the arrays that stay here."""

    context: str | None = None
    local: str | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """What a task came to; `files` is None where the run's state did not change."""

    result: TaskResult
    files: RunFiles | None = None


class Journal:
    """The agent's database: journal and audit log, one writer."""

    def __init__(
        self,
        file: Path,
        *,
        site: str,
        policy: str | None,
        token_bytes: Callable[[int], bytes],
    ) -> None:
        self._connection = sqlite3.connect(file, isolation_level=None, timeout=10.0)
        self.audit = AuditLog(self._connection, site=site, policy=policy, token_bytes=token_bytes)
        try:
            self._prepare(file)
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    def join(self, membership: Membership, *, coordinator: str, now: float) -> None:
        """Store who this site is from now on; `coordinator` is the address that was asked."""
        details = AgentEnrolled(
            key_id=membership.key_id, coordinator_key=membership.coordinator_key
        )
        with self._transaction():
            self._connection.execute(
                "INSERT INTO membership VALUES (1, ?, ?)",
                (coordinator, membership.model_dump_json()),
            )
            self.audit.append(Event(details), now=now)

    def record(self, *events: Event, now: float) -> None:
        """Write audit records that go with no other change."""
        with self._transaction():
            for event in events:
                self.audit.append(event, now=now)

    def receive(self, task: Task, *, now: float) -> Finished | None:
        """Note that the task is leased; return its answer if it was finished before.

        An answer of an earlier lease keeps everything but the fence.
        """
        with self._transaction():
            self._connection.execute(
                "INSERT INTO tasks (task, run, kind, fence, status, received_at, changed_at)"
                " VALUES (?, ?, ?, ?, 'received', ?, ?) ON CONFLICT (task) DO UPDATE"
                " SET fence = excluded.fence, changed_at = excluded.changed_at",
                (task.task, task.run, task.kind, task.fence, now, now),
            )
            details = TaskReceived(
                kind=task.kind,
                attempt=task.attempt,
                fence=task.fence,
                plan=task.plan,
                model=task.model,
            )
            self.audit.append(about(task, details), now=now)
        row = self._connection.execute(
            "SELECT result FROM tasks WHERE task = ?", (task.task,)
        ).fetchone()
        if row[0] is None:
            return None
        return Finished(TaskResult.model_validate_json(row[0]))

    def finish(self, task: Task, finished: Finished, *, now: float) -> None:
        """Store the task's answer and the run's new state; what came before it is obsolete."""
        result, files = finished.result, finished.files
        update = None if result.update is None else result.update.digest
        with self._transaction():
            self._connection.execute(
                "UPDATE tasks SET status = 'finished', result = ?, update_digest = ?,"
                " changed_at = ? WHERE task = ?",
                (result.model_dump_json(), update, now, task.task),
            )
            if files is not None:
                self._connection.execute(
                    "INSERT INTO runs VALUES (?, ?, ?, ?) ON CONFLICT (run) DO UPDATE SET"
                    " context = excluded.context, local = excluded.local,"
                    " changed_at = excluded.changed_at",
                    (task.run, files.context, files.local, now),
                )
            self._connection.execute(
                "DELETE FROM tasks WHERE run = ? AND task <> ?", (task.run, task.task)
            )
            self.audit.append(_ending(task, result), now=now)

    def settle(self, task: Task, receipt: ResultReceipt, *, final: bool, now: float) -> None:
        """Store the coordinator's answer; `final` unless the same task may be leased again."""
        with self._transaction():
            if final:
                self._connection.execute(
                    "UPDATE tasks SET status = 'settled', receipt = ?, changed_at = ?"
                    " WHERE task = ?",
                    (receipt.model_dump_json(), now, task.task),
                )
            details = EgressSettled(accepted=receipt.accepted)
            outcome: Outcome = "success" if receipt.accepted else "denied"
            event = about(task, details, outcome=outcome, reason=receipt.reason)
            self.audit.append(event, now=now)

    def abandon(self, task: Task, *, final: bool, now: float) -> None:
        """Note that the task is not wanted; `final` unless it may be leased again."""
        gone = about(task, TaskGone(fence=task.fence), outcome="failure", reason="not-wanted")
        with self._transaction():
            if final:
                self._connection.execute(
                    "UPDATE tasks SET status = 'settled', changed_at = ? WHERE task = ?",
                    (now, task.task),
                )
            self.audit.append(gone, now=now)

    def run_files(self, run: str) -> RunFiles:
        """Return the run's kept files; none before its first finished task."""
        row = self._connection.execute(
            "SELECT context, local FROM runs WHERE run = ?", (run,)
        ).fetchone()
        return RunFiles() if row is None else RunFiles(row[0], row[1])

    def referenced(self) -> set[str]:
        """Return the digests of all kept files that are still needed."""
        rows = self._connection.execute(
            "SELECT update_digest FROM tasks WHERE status <> 'settled'"
            " UNION SELECT context FROM runs UNION SELECT local FROM runs"
        )
        return {digest for (digest,) in rows if digest is not None}

    def unfinished(self) -> int:
        """Return how many tasks were received and not finished."""
        row = self._connection.execute(
            "SELECT count(*) FROM tasks WHERE status = 'received'"
        ).fetchone()
        return int(row[0])

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            if self._connection.in_transaction:  # a full disk has rolled back already
                self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def _prepare(self, file: Path) -> None:
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        version = self._connection.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            self._connection.executescript(
                f"BEGIN; {_SCHEMA} {audit.SCHEMA} PRAGMA user_version = {FORMAT}; COMMIT;"
            )
        elif version != FORMAT:
            raise InvalidState(f"{file}: got format {version}, this agent writes {FORMAT}")


def stored_membership(file: Path) -> Membership:
    """Return the membership in a journal.

    Raises:
        NotEnrolled: there is none.
    """
    if file.exists():
        with closing(sqlite3.connect(file)) as connection:
            found = connection.execute(
                "SELECT name FROM sqlite_master WHERE name = 'membership'"
            ).fetchone()
            row = found and connection.execute("SELECT document FROM membership").fetchone()
        if row:
            return Membership.model_validate_json(row[0])
    raise NotEnrolled(f"{file.parent}: no membership; run `fedward agent enrol` first")


def about(
    task: Task,
    details: EventDetails,
    *,
    outcome: Outcome = "success",
    reason: str | None = None,
) -> Event:
    """Return an event whose object is the task."""
    return Event(
        details,
        outcome=outcome,
        reason=reason,
        subject=Subject("task", task.task, study=task.study, run=task.run, round=task.round),
    )


def _ending(task: Task, result: TaskResult) -> Event:
    if result.failure is not None:
        details = TaskFailedHere(kind=task.kind, failure=result.failure)
        return about(task, details, outcome="failure", reason=result.failure.value)
    update = result.update
    return about(
        task,
        TaskFinished(
            kind=task.kind,
            update=None if update is None else update.digest,
            update_bytes=0 if update is None else update.size_bytes,
            metrics=sorted(result.metrics or {}),
        ),
    )
