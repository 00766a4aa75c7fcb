"""Model versions: content-addressed arrays with a parent."""

import re
from collections.abc import Iterable
from pathlib import Path

from fedward.coordinator import audit, run_steps, views
from fedward.coordinator.actors import Actor
from fedward.coordinator.blobs import map_file
from fedward.coordinator.context import Context
from fedward.coordinator.errors import InvalidInput, NotFound
from fedward.coordinator.paging import checked_limit, make_page
from fedward.coordinator.store import rows, run_queries
from fedward.coordinator.store.records import ModelRecord, VersionRecord
from fedward.coordinator.store.unit_of_work import Snapshot
from fedward.protocol.arrays import ArraySpec, Schema, decode, require_finite, schema_of
from fedward.protocol.errors import InvalidArrays
from fedward.protocol.records import Subject
from fedward.protocol.timestamps import to_timestamp


def add(context: Context, actor: Actor, *, path: Path) -> views.ModelView:
    """Copy a safetensors file into the store; adding it twice changes nothing."""
    arrays = decode(map_file(path))
    if not arrays:
        raise InvalidArrays("model: got a file without any array, expected one at least")
    require_finite(arrays)
    schema = schema_of(arrays)
    digest = context.blobs.put_file(path)
    with context.store.transaction() as work:
        known = rows.get(work.connection, ModelRecord, digest)
        if known is None:
            known = record_of(digest, schema, size_bytes=path.stat().st_size, now=context.clock())
            rows.add(work.connection, known)
            audit.append(
                context,
                work,
                actor=actor,
                action="model.add",
                subject=Subject("model", digest, digest=digest),
                details={"size_bytes": known.size_bytes, "parameters": known.parameters},
            )
        return _view(known, _origin(work.connection, digest))


def record_of(digest: str, schema: Schema, *, size_bytes: int, now: float) -> ModelRecord:
    """Return the row of a model."""
    return ModelRecord(
        digest=digest,
        size_bytes=size_bytes,
        parameters=sum(spec.elements for spec in schema),
        schema=[[spec.name, spec.dtype, list(spec.shape)] for spec in schema],
        created=now,
    )


def schema_from(record: ModelRecord) -> Schema:
    """Return the schema that a row holds."""
    return tuple(ArraySpec(name, dtype, tuple(shape)) for name, dtype, shape in record.schema)


def get(connection: Snapshot, digest: str) -> ModelRecord:
    """Return the record. Raises NotFound."""
    record = rows.get(connection, ModelRecord, digest)
    if record is None:
        raise NotFound("unknown-model", f"no model {digest}", model=digest)
    return record


def page(
    context: Context, run: str | None, *, after: str | None, limit: int
) -> views.Page[views.ModelView]:
    """Return a run's versions by round, or all models by digest; without arrays."""
    with context.store.reading() as connection:
        if run is None:
            found = rows.page(connection, ModelRecord, after=after, limit=checked_limit(limit) + 1)
            return make_page(
                found,
                limit=limit,
                key=lambda record: record.digest,
                view=lambda record: _bare(_view(record, _origin(connection, record.digest))),
            )
        run_steps.get(connection, run)
        versions = run_queries.versions_of(
            connection, run, after=_round(after), limit=checked_limit(limit) + 1
        )
        return make_page(
            versions,
            limit=limit,
            key=lambda version: str(version.round),
            view=lambda version: _bare(_view(get(connection, version.digest), version)),
        )


def show(context: Context, digest: str) -> views.ModelView:
    """Return one model with its arrays."""
    with context.store.reading() as connection:
        return _view(get(connection, digest), _origin(connection, digest))


def lineage(context: Context, digest: str) -> list[views.ModelView]:
    """Return the model and its ancestors, newest first.

    Equal models of several runs are one model: the first run that made it tells its parent.
    """
    found: list[views.ModelView] = []
    with context.store.reading() as connection:
        version, current, seen = _origin(connection, digest), digest, set[tuple[str, int]]()
        while True:
            found.append(_bare(_view(get(connection, current), version)))
            if version is None or (version.run, version.round) in seen:
                return found
            seen.add((version.run, version.round))
            current = version.parent
            version = _origin(connection, current, before=version)


def open_file(context: Context, actor: Actor, *, digest: str) -> Path:
    """Return the file to send; the read is recorded."""
    with context.store.transaction() as work:
        get(work.connection, digest)
        path = context.blobs.path(digest)
        audit.append(
            context,
            work,
            actor=actor,
            action="model.read",
            subject=Subject("model", digest, digest=digest),
        )
    return path


def _origin(
    connection: Snapshot, digest: str, *, before: VersionRecord | None = None
) -> VersionRecord | None:
    """Return the version that made a model: in the same run, else in the first run that did."""
    if before is not None:
        same = run_queries.origin_of(connection, digest, run=before.run, before_round=before.round)
        if same is not None:
            return same
    return run_queries.origin_of(connection, digest)


def _round(after: str | None) -> int | None:
    if after is None:
        return None
    if not re.fullmatch("[0-9]{1,15}", after):
        raise InvalidInput("invalid-cursor", f"after: got {after!r}, expected a round's number")
    return int(after)


def _bare(view: views.ModelView) -> views.ModelView:
    return view.model_copy(update={"arrays": []})


def _view(record: ModelRecord, version: VersionRecord | None) -> views.ModelView:
    arrays: Iterable[ArraySpec] = schema_from(record)
    return views.ModelView(
        digest=record.digest,
        parent=version.parent if version else None,
        run=version.run if version else None,
        round=version.round if version else None,
        created=to_timestamp(version.created if version else record.created),
        size_bytes=record.size_bytes,
        parameters=record.parameters,
        arrays=[views.ArrayView(name=a.name, dtype=a.dtype, shape=list(a.shape)) for a in arrays],
    )
