"""API tokens, and answers that are kept so that a repeat gets the first one."""

import base64
from collections.abc import Callable
from dataclasses import dataclass

from fedward.coordinator import audit, denials, views
from fedward.coordinator.actors import ANONYMOUS, ROLES, SYSTEM, Actor
from fedward.coordinator.context import Context, Denial
from fedward.coordinator.errors import Conflict, InvalidInput, NotAuthenticated, NotFound
from fedward.coordinator.identifiers import new_id
from fedward.coordinator.paging import checked_limit, make_page
from fedward.coordinator.store import access_queries, rows
from fedward.coordinator.store.records import AnswerRecord, TokenRecord
from fedward.protocol.canonical import sha256_digest
from fedward.protocol.records import Subject
from fedward.protocol.timestamps import to_timestamp

TOKEN_MAX_S = 90 * 86_400.0
BOOTSTRAP_S = 7 * 86_400.0
"""The first token is for making others."""
MAX_KEY_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """An HTTP answer. `shown_once`: it holds a secret and is not kept. `replayed`: a repeat's."""

    status: int
    body: bytes
    shown_once: bool = False
    replayed: bool = False


# ---------------------------------------------------------------- tokens


def create_token(
    context: Context, actor: Actor, *, name: str, role: str, ttl_s: float
) -> views.NewToken:
    """Make an API token.

    Raises:
        InvalidInput: an unknown role, or a life of more than 90 days.
    """
    if role not in ROLES:
        raise InvalidInput(
            "invalid-role", f"role: got {role!r}, expected one of {', '.join(ROLES)}"
        )
    if not 0 < ttl_s <= TOKEN_MAX_S:
        raise InvalidInput("invalid-ttl", f"ttl_s: got {ttl_s}, expected 0 to {TOKEN_MAX_S:.0f}")
    if not 1 <= len(name) <= 200:
        raise InvalidInput("invalid-name", f"name: got {len(name)} characters, expected 1 to 200")
    now = context.clock()
    secret = "fw_" + base64.urlsafe_b64encode(context.token_bytes(32)).rstrip(b"=").decode()
    record = TokenRecord(
        token=new_id("token", now=now, entropy=context.token_bytes(10)),
        secret_hash=_hash(secret),
        name=name,
        role=role,
        created=now,
        expires=now + ttl_s,
    )
    with context.store.transaction() as work:
        rows.add(work.connection, record)
        audit.append(
            context,
            work,
            actor=actor,
            action="token.create",
            subject=Subject("token", record.token),
            details={"role": role, "expires": to_timestamp(record.expires)},
        )
    return views.NewToken(
        token=record.token,
        name=name,
        role=role,
        expires=to_timestamp(record.expires),
        secret=secret,
    )


def bootstrap_token(context: Context) -> str | None:
    """Return the secret of a new admin token, None while a valid one exists.

    Whoever can restart the process owns its data folder anyway; without this, the expiry of the
    last admin token would lock everybody out.
    """
    with context.store.transaction() as work:
        if access_queries.has_valid_admin(work.connection, now=context.clock()):
            return None
        made = create_token(context, SYSTEM, name="bootstrap", role="admin", ttl_s=BOOTSTRAP_S)
    return made.secret


def page(context: Context, *, after: str | None, limit: int) -> views.Page[views.TokenView]:
    """Return tokens by id."""
    with context.store.reading() as connection:
        found = rows.page(connection, TokenRecord, after=after, limit=checked_limit(limit) + 1)
    return make_page(found, limit=limit, key=lambda record: record.token, view=_view)


def revoke_token(context: Context, actor: Actor, *, token: str) -> views.TokenView:
    """Refuse the token from now on; again changes nothing."""
    with context.store.transaction() as work:
        record = rows.get(work.connection, TokenRecord, token)
        if record is None:
            raise NotFound("unknown-token", f"no token {token}", token=token)
        if record.revoked is None:
            rows.change(work.connection, TokenRecord, token, revoked=context.clock())
            audit.append(
                context,
                work,
                actor=actor,
                action="token.revoke",
                subject=Subject("token", token),
            )
        changed = rows.get(work.connection, TokenRecord, token) or record
    return _view(changed)


def authenticate(context: Context, secret: str) -> Actor:
    """Return who holds the token.

    Raises:
        NotAuthenticated: unknown, expired or revoked; all told alike, recorded apart.
    """
    with context.store.reading() as connection:
        record = access_queries.token_by_hash(connection, _hash(secret))
    reason = None
    if record is None:
        reason = "unknown-token"
    elif record.revoked is not None:
        reason = "token-revoked"
    elif record.expires <= context.clock():
        reason = "token-expired"
    if record is None or reason is not None:
        denials.record(context, Denial(ANONYMOUS, "token.use", reason or "unknown-token"))
        raise NotAuthenticated("invalid-token", "the token is unknown, expired or revoked")
    return Actor("user", record.token, record.role, session=record.token)


# ---------------------------------------------------------------- once


def call_once(
    context: Context,
    actor: Actor,
    *,
    key: str,
    request_digest: str,
    call: Callable[[], StoredAnswer],
) -> StoredAnswer:
    """Perform `call` and keep its answer in the same transaction."""
    if not 1 <= len(key) <= MAX_KEY_CHARACTERS:
        raise InvalidInput(
            "invalid-idempotency-key",
            f"idempotency key: got {len(key)} characters, expected 1 to {MAX_KEY_CHARACTERS}",
        )
    owner = f"{actor.type}:{actor.id}"
    with context.store.transaction() as work:
        kept = rows.get(work.connection, AnswerRecord, owner, key)
        if kept is not None:
            return _replay(kept, request_digest)
        answer = call()
        rows.add(
            work.connection,
            AnswerRecord(
                owner,
                key,
                request_digest,
                answer.status,
                None if answer.shown_once else answer.body,
                context.clock(),
            ),
        )
    return answer


def _replay(kept: AnswerRecord, request_digest: str) -> StoredAnswer:
    if kept.request_digest != request_digest:
        raise Conflict(
            "idempotency-key-reused",
            "the idempotency key was used for another request; expected a new key",
        )
    if kept.body is None:
        raise Conflict(
            "answer-shown-once",
            "the first answer held a secret and was not kept; revoke what it made and ask anew",
        )
    return StoredAnswer(kept.status, kept.body, replayed=True)


def _hash(secret: str) -> str:
    return sha256_digest(secret.encode())


def _view(record: TokenRecord) -> views.TokenView:
    return views.TokenView(
        token=record.token,
        name=record.name,
        role=record.role,
        created=to_timestamp(record.created),
        expires=to_timestamp(record.expires),
        revoked=None if record.revoked is None else to_timestamp(record.revoked),
    )
