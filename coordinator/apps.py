"""Uploaded Flower apps, by digest."""

from fedward.coordinator import audit, views
from fedward.coordinator.actors import Actor
from fedward.coordinator.bundles import read_bundle
from fedward.coordinator.context import Context
from fedward.coordinator.errors import NotFound
from fedward.coordinator.paging import checked_limit, make_page
from fedward.coordinator.store import rows
from fedward.coordinator.store.records import AppRecord
from fedward.protocol.canonical import sha256_digest
from fedward.protocol.records import Subject
from fedward.protocol.timestamps import to_timestamp


def add(context: Context, actor: Actor, *, data: bytes) -> views.AppView:
    """Keep a zip of a Flower app directory; adding it twice changes nothing."""
    digest = sha256_digest(data)
    bundle = read_bundle(data)
    context.blobs.put([data])  # first: whatever the row names exists
    with context.store.transaction() as work:
        known = rows.get(work.connection, AppRecord, digest)
        if known is not None:
            return _view(known)
        record = AppRecord(
            digest=digest,
            name=bundle.name,
            version=bundle.version,
            clientapp=bundle.clientapp,
            config=bundle.config,
            files=list(bundle.files),
            size_bytes=len(data),
            created=context.clock(),
        )
        rows.add(work.connection, record)
        audit.append(
            context,
            work,
            actor=actor,
            action="app.add",
            subject=Subject("app", bundle.name, digest=digest),
            details={"name": bundle.name, "version": bundle.version, "size_bytes": len(data)},
        )
    return _view(record)


def page(context: Context, *, after: str | None, limit: int) -> views.Page[views.AppView]:
    """Return apps by digest."""
    with context.store.reading() as connection:
        found = rows.page(connection, AppRecord, after=after, limit=checked_limit(limit) + 1)
    return make_page(found, limit=limit, key=lambda record: record.digest, view=_view)


def show(context: Context, digest: str) -> views.AppView:
    """Return one app."""
    with context.store.reading() as connection:
        record = rows.get(connection, AppRecord, digest)
    if record is None:
        raise NotFound("unknown-app", f"no app {digest}", app=digest)
    return _view(record)


def _view(record: AppRecord) -> views.AppView:
    return views.AppView(
        digest=record.digest,
        name=record.name,
        version=record.version,
        clientapp=record.clientapp,
        config=record.config,
        files=record.files,
        size_bytes=record.size_bytes,
        created=to_timestamp(record.created),
    )
