"""Sites, invites, nonces, tokens and kept answers: the queries beyond one row by key."""

from sqlalchemy import Connection, delete, select

from fedward.coordinator.store import tables as t
from fedward.coordinator.store.records import SiteRecord, TokenRecord
from fedward.coordinator.store.rows import fetch


def site_by_key(connection: Connection, key_id: str) -> SiteRecord | None:
    """Return the site whose agent has this key."""
    found = fetch(connection, SiteRecord, select(t.sites).where(t.sites.c.key_id == key_id))
    return found[0] if found else None


def enrolled_sites(connection: Connection) -> set[str]:
    """Return the names of the sites that may take part."""
    return set(connection.scalars(select(t.sites.c.site).where(t.sites.c.status == "enrolled")))


def end_invites(connection: Connection, site: str) -> None:
    """Forget the site's unused invites."""
    connection.execute(
        delete(t.invites).where(t.invites.c.site == site, t.invites.c.used.is_(None))
    )


def token_by_hash(connection: Connection, secret_hash: str) -> TokenRecord | None:
    """Return the token with this hash."""
    query = select(t.tokens).where(t.tokens.c.secret_hash == secret_hash)
    found = fetch(connection, TokenRecord, query)
    return found[0] if found else None


def has_valid_admin(connection: Connection, *, now: float) -> bool:
    """Return whether an admin's token is neither expired nor revoked."""
    c = t.tokens.c
    valid = select(c.token).where(c.role == "admin", c.revoked.is_(None), c.expires > now)
    return connection.execute(valid.limit(1)).first() is not None


def purge(connection: Connection, *, nonces_before: float, answers_before: float) -> None:
    """Forget nonces and kept answers from before these times."""
    connection.execute(delete(t.nonces).where(t.nonces.c.created < nonces_before))
    connection.execute(delete(t.idempotency).where(t.idempotency.c.created < answers_before))
