"""One transaction per event: who may write when, and what happens after the commit.

`transaction()` takes the one writer's place before it reads (SQLite: BEGIN IMMEDIATE, behind a
lock of this process), so that what it read is still true when it writes. A transaction that is
opened inside another one in the same context joins it. Actions that must follow the commit
(wake-ups, deletions of files) are registered with `after_commit` and are dropped on rollback.
"""

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from sqlalchemy import Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DatabaseError, IntegrityError
from sqlalchemy.pool import ConnectionPoolEntry

from fedward.coordinator.errors import Unavailable
from fedward.coordinator.store.migrations.upgrade import upgrade

_BUSY_TIMEOUT_MS = 30_000
_log = logging.getLogger(__name__)

Snapshot = Connection
"""What queries read from and, inside a transaction, write to."""


class UnitOfWork:
    """An open transaction: its connection and what follows its commit."""

    def __init__(self, connection: Snapshot) -> None:
        self.connection = connection
        self._after: list[Callable[[], None]] = []

    def after_commit(self, action: Callable[[], None]) -> None:
        """Perform `action` once the transaction is durable; order is kept."""
        self._after.append(action)

    def committed(self) -> None:
        """Perform the actions; one that fails on files is logged and the rest still follow."""
        for action in self._after:
            try:
                action()
            except OSError:  # what is committed stays committed; start-up cleans files
                _log.exception("an action after a commit failed")


_current: ContextVar[UnitOfWork | None] = ContextVar("fedward_unit_of_work", default=None)


class Store:
    """The database. Opening it brings the schema up to date."""

    def __init__(self, url: str) -> None:
        self._engine = _make_engine(url)
        self._writer = threading.Lock()
        with self._guarded():
            upgrade(self._engine)

    @contextmanager
    def transaction(self) -> Iterator[UnitOfWork]:
        """Open a writing transaction, or join the one that is open in this context.

        Raises:
            Unavailable: the database cannot be written; nothing changed.
        """
        outer = _current.get()
        if outer is not None:
            yield outer
            return
        writing = self._engine.execution_options(fedward_begin="IMMEDIATE")
        with self._guarded(), self._writer, writing.begin() as connection:
            work = UnitOfWork(connection)
            reset = _current.set(work)
            try:
                yield work
            finally:
                _current.reset(reset)
        work.committed()

    @contextmanager
    def reading(self) -> Iterator[Snapshot]:
        """Open one consistent snapshot; inside a transaction, what it sees.

        Raises:
            Unavailable: the database cannot be read.
        """
        outer = _current.get()
        if outer is not None:
            yield outer.connection
            return
        with self._guarded(), self._engine.begin() as connection:
            yield connection

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except IntegrityError:
            raise  # a bug of ours: constraints are checked before they can be broken
        except DatabaseError as error:
            raise Unavailable(
                "storage-unavailable", f"the database did not answer: {type(error).__name__}"
            ) from error


def _make_engine(url: str) -> Engine:
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite":
        return create_engine(parsed, isolation_level="SERIALIZABLE")
    if not parsed.database or parsed.database == ":memory:":
        raise ValueError("the store needs a file: expected sqlite:///PATH")
    Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(parsed, pool_size=16, max_overflow=48)
    event.listen(engine, "connect", _configure_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _configure_sqlite(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
    if not isinstance(connection, sqlite3.Connection):
        raise TypeError(f"got {type(connection).__name__}, expected sqlite3.Connection")
    connection.isolation_level = None  # BEGIN is ours, see _begin_sqlite
    for pragma in (
        f"busy_timeout={_BUSY_TIMEOUT_MS}",
        "journal_mode=WAL",
        "synchronous=FULL",
        "foreign_keys=ON",
        "recursive_triggers=ON",  # DELETE triggers fire for INSERT OR REPLACE, too
    ):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    mode = connection.get_execution_options().get("fedward_begin", "DEFERRED")
    connection.execute(text(f"BEGIN {mode}"))
