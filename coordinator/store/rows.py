"""Reading and writing single records by primary key; other queries are beside it by subject."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, TypeVar

from sqlalchemy import Connection, Select, Table, insert, select, update

from fedward.coordinator.store import records as r
from fedward.coordinator.store import tables as t

R = TypeVar("R")

TABLES: dict[type, Table] = {
    r.StudyRecord: t.studies,
    r.SiteRecord: t.sites,
    r.InviteRecord: t.invites,
    r.AppRecord: t.apps,
    r.ModelRecord: t.models,
    r.PlanRecord: t.plans,
    r.RunRecord: t.runs,
    r.VersionRecord: t.model_versions,
    r.AttemptRecord: t.attempts,
    r.TaskRecord: t.tasks,
    r.JobRecord: t.jobs,
    r.TokenRecord: t.tokens,
    r.NonceRecord: t.nonces,
    r.AnswerRecord: t.idempotency,
    r.EventRecord: t.audit_events,
    r.NodeRecord: t.audit_nodes,
}


def add(connection: Connection, *records: object) -> None:
    """Insert records of one kind."""
    if records:
        connection.execute(
            insert(TABLES[type(records[0])]), [_columns(record) for record in records]
        )


def get(connection: Connection, kind: type[R], *key: str | int) -> R | None:
    """Return the record with this primary key (in the order of its columns), or None."""
    table = TABLES[kind]
    found = fetch(connection, kind, select(table).where(*_by_key(table, key)))
    return found[0] if found else None


def change(connection: Connection, kind: type, *key: str | int, **columns: Any) -> None:
    """Set columns of the record with this primary key.

    Raises:
        LookupError: there is none (a bug of the caller).
    """
    table = TABLES[kind]
    done = connection.execute(update(table).where(*_by_key(table, key)).values(**columns))
    if done.rowcount != 1:
        raise LookupError(f"{table.name}: no row {key}")


def page(connection: Connection, kind: type[R], *, after: str | None, limit: int) -> list[R]:
    """Return records in the order of their one-column primary key, which follows `after`."""
    table = TABLES[kind]
    (key,) = table.primary_key.columns
    query = select(table).order_by(key).limit(limit)
    return fetch(connection, kind, query if after is None else query.where(key > after))


def fetch(connection: Connection, kind: type[R], query: Select[Any]) -> list[R]:
    """Return the rows of a query over all columns of a record's table."""
    return [kind(**row) for row in connection.execute(query).mappings()]


def _columns(record: object) -> dict[str, Any]:
    return {f.name: getattr(record, f.name) for f in fields(record)}  # type: ignore[arg-type]  # a record


def _by_key(table: Table, key: Sequence[str | int]) -> list[Any]:
    return [column == value for column, value in zip(table.primary_key.columns, key, strict=True)]
