"""Sites: invited, enrolled with a key, admitted request by request, revoked."""

import base64

from fedward.coordinator import audit, denials, runs, views
from fedward.coordinator.actors import ANONYMOUS, Actor, agent
from fedward.coordinator.context import Context
from fedward.coordinator.errors import (
    Conflict,
    InvalidInput,
    NotAllowed,
    NotAuthenticated,
    NotFound,
)
from fedward.coordinator.paging import checked_limit, make_page
from fedward.coordinator.store import access_queries, rows
from fedward.coordinator.store.records import InviteRecord, NonceRecord, SiteRecord
from fedward.coordinator.store.unit_of_work import Snapshot, UnitOfWork
from fedward.protocol.canonical import sha256_digest
from fedward.protocol.documents import PROTOCOL_VERSION, Enrolment, Membership
from fedward.protocol.records import Subject
from fedward.protocol.signatures import key_id_of, public_bytes, public_hex
from fedward.protocol.timestamps import to_timestamp

INVITED, ENROLLED, REVOKED = "invited", "enrolled", "revoked"
INVITE_MAX_S = 30 * 86_400.0
SEEN_EVERY_S = 30.0
"""How exactly `last_seen` is kept."""


def invite(
    context: Context, actor: Actor, *, site: str, organisation: str, ttl_s: float
) -> views.Invite:
    """Invite a site.

    Raises:
        Conflict: it is enrolled.
        InvalidInput: the invite would live longer than 30 days.
    """
    if not 0 < ttl_s <= INVITE_MAX_S:
        raise InvalidInput("invalid-ttl", f"ttl_s: got {ttl_s}, expected 0 to {INVITE_MAX_S:.0f}")
    now = context.clock()
    secret = base64.urlsafe_b64encode(context.token_bytes(32)).rstrip(b"=").decode()
    # The fingerprint lets the agent check that it talks to the coordinator that invited it.
    fingerprint = key_id_of(public_bytes(context.key))
    text = f"fwi_{secret}_{fingerprint}"
    with context.store.transaction() as work:
        known = rows.get(work.connection, SiteRecord, site)
        if known is not None and known.status == ENROLLED:
            raise Conflict("site-enrolled", f"site {site} is enrolled; revoke it first", site=site)
        if known is None:
            rows.add(work.connection, SiteRecord(site, organisation, INVITED, invited=now))
        else:
            rows.change(
                work.connection,
                SiteRecord,
                site,
                organisation=organisation,
                invited=now,
            )
        access_queries.end_invites(work.connection, site)
        rows.add(
            work.connection, InviteRecord(sha256_digest(text.encode()), site, now, now + ttl_s)
        )
        audit.append(
            context,
            work,
            actor=actor,
            action="site.invite",
            subject=Subject("site", site),
            details={"expires": to_timestamp(now + ttl_s)},
        )
    return views.Invite(
        site=site, organisation=organisation, invite=text, expires=to_timestamp(now + ttl_s)
    )


def enrol(context: Context, enrolment: Enrolment, *, key_id: str) -> Membership:
    """Enrol the site of an invite with the key that signed the request."""
    if enrolment.protocol != PROTOCOL_VERSION:
        raise NotAllowed(
            "protocol-unsupported",
            f"protocol: got {enrolment.protocol}, expected {PROTOCOL_VERSION}",
        )
    announced = key_id_of(bytes.fromhex(enrolment.public_key))
    with (
        denials.recorded(context, ANONYMOUS, action="site.enrol"),
        context.store.transaction() as work,
    ):
        if announced != key_id:
            raise NotAuthenticated(
                "key-mismatch", f"key id: got {key_id}, expected {announced}, the announced key's"
            )
        site = _site_of_invite(context, work, enrolment, key_id=key_id)
        if not (site.status == ENROLLED and site.key_id == key_id):
            site = _enrol(context, work, enrolment, site=site.site, key_id=key_id)
    return Membership(
        site=site.site,
        key_id=key_id,
        coordinator_key=public_hex(context.key),
        protocol=PROTOCOL_VERSION,
        enrolled_at=to_timestamp(site.enrolled or context.clock()),
    )


def find_key(context: Context, key_id: str) -> bytes | None:
    """Return the public key of an enrolled or revoked site (a revoked one is told so)."""
    with context.store.reading() as connection:
        site = access_queries.site_by_key(connection, key_id)
    return None if site is None or site.public_key is None else bytes.fromhex(site.public_key)


def admit(context: Context, key_id: str, *, nonce: str, created: float) -> str:
    """Return the site of a verified request, once per nonce."""
    now = context.clock()
    with (
        denials.recorded(context, Actor("agent", key_id), action="agent.request"),
        context.store.transaction() as work,
    ):
        site = access_queries.site_by_key(work.connection, key_id)
        if site is None:
            raise NotAuthenticated("unknown-key", f"no site has the key {key_id}")
        if site.status != ENROLLED:
            raise NotAuthenticated("site-revoked", f"site {site.site} is revoked", site=site.site)
        if rows.get(work.connection, NonceRecord, key_id, nonce) is not None:
            raise NotAuthenticated(
                "replayed-request", "this very request was received before; expected a new nonce"
            )
        rows.add(work.connection, NonceRecord(key_id, nonce, now))
        if site.last_seen is None or now >= site.last_seen + SEEN_EVERY_S:
            rows.change(
                work.connection,
                SiteRecord,
                site.site,
                last_seen=now,
                clock_skew_s=created - now,
            )
    return site.site


def revoke(context: Context, actor: Actor, *, site: str) -> views.SiteView:
    """Refuse the site from now on; again changes nothing."""
    with context.store.transaction() as work:
        record = _get(work.connection, site)
        if record.status != REVOKED:
            access_queries.end_invites(work.connection, site)
            rows.change(work.connection, SiteRecord, site, status=REVOKED, revoked=context.clock())
            audit.append(
                context,
                work,
                actor=actor,
                action="site.revoke",
                subject=Subject("site", site),
            )
            runs.sites_changed(context, work, site=site, actor=actor)
            work.after_commit(lambda: context.notifier.notify(f"site:{site}"))
        changed = _get(work.connection, site)
    return _view(changed)


def page(context: Context, *, after: str | None, limit: int) -> views.Page[views.SiteView]:
    """Return sites by name."""
    with context.store.reading() as connection:
        found = rows.page(connection, SiteRecord, after=after, limit=checked_limit(limit) + 1)
    return make_page(found, limit=limit, key=lambda record: record.site, view=_view)


def show(context: Context, site: str) -> views.SiteView:
    """Return one site."""
    with context.store.reading() as connection:
        return _view(_get(connection, site))


def _site_of_invite(
    context: Context, work: UnitOfWork, enrolment: Enrolment, *, key_id: str
) -> SiteRecord:
    """Return the invite's site. Unknown and expired ones are told alike."""
    invite = rows.get(work.connection, InviteRecord, sha256_digest(enrolment.invite.encode()))
    if invite is None or (invite.used is None and invite.expires <= context.clock()):
        raise NotAuthenticated("invalid-invite", "the invite is unknown or expired")
    site = _get(work.connection, invite.site)
    if invite.used is not None and (invite.used_by != key_id or site.key_id != key_id):
        raise NotAuthenticated("invite-used", "the invite was used by another key")
    if invite.used is not None and site.status != ENROLLED:
        raise NotAuthenticated("site-revoked", f"site {site.site} is revoked", site=site.site)
    if invite.used is None:
        other = access_queries.site_by_key(work.connection, key_id)
        if other is not None:  # a revoked key does not come back, and no two sites share one
            raise NotAuthenticated("key-known", "this key was enrolled before; expected a new key")
        rows.change(
            work.connection,
            InviteRecord,
            invite.invite_hash,
            used=context.clock(),
            used_by=key_id,
        )
    return site


def _enrol(
    context: Context, work: UnitOfWork, enrolment: Enrolment, *, site: str, key_id: str
) -> SiteRecord:
    rows.change(
        work.connection,
        SiteRecord,
        site,
        status=ENROLLED,
        enrolled=context.clock(),
        revoked=None,
        key_id=key_id,
        public_key=enrolment.public_key,
        protocol=enrolment.protocol,
        agent_version=enrolment.agent_version,
        library_versions=enrolment.library_versions,
    )
    audit.append(
        context,
        work,
        actor=agent(site),
        action="site.enrol",
        subject=Subject("site", site),
        details={
            "key_id": key_id,
            "public_key": enrolment.public_key,
            "protocol": enrolment.protocol,
            "agent_version": enrolment.agent_version,
        },
    )
    runs.sites_changed(context, work, site=site, actor=agent(site))
    return _get(work.connection, site)


def _get(connection: Snapshot, site: str) -> SiteRecord:
    record = rows.get(connection, SiteRecord, site)
    if record is None:
        raise NotFound("unknown-site", f"no site {site}", site=site)
    return record


def _view(record: SiteRecord) -> views.SiteView:
    times = {
        name: None if (value := getattr(record, name)) is None else to_timestamp(value)
        for name in ("enrolled", "revoked", "last_seen")
    }
    return views.SiteView(
        site=record.site,
        organisation=record.organisation,
        status=record.status,
        invited=to_timestamp(record.invited),
        clock_skew_s=record.clock_skew_s,
        key_id=record.key_id,
        public_key=record.public_key,
        protocol=record.protocol,
        agent_version=record.agent_version,
        library_versions=record.library_versions,
        **times,
    )
