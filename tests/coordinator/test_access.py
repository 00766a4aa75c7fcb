"""Tokens, enrolment, admission, and answers that are given once."""

import hashlib

import pytest

from fedward.coordinator.access import StoredAnswer
from fedward.coordinator.errors import (
    Conflict,
    CoordinatorError,
    InvalidInput,
    NotAllowed,
    NotAuthenticated,
)
from fedward.protocol.documents import PROTOCOL_VERSION, Enrolment

from .federation import ADMIN, START, Federation

KEY = "ab" * 32
KEY_ID = hashlib.sha256(bytes.fromhex(KEY)).hexdigest()[:32]


def enrolment(invite: str, **changes: str) -> Enrolment:
    fields = {"public_key": KEY, "protocol": PROTOCOL_VERSION, "agent_version": "1"}
    return Enrolment(invite=invite, **(fields | changes))


def actions(federation: Federation) -> list[object]:
    return [e.record["action"] for e in federation.coordinator.audit_events(ADMIN, limit=500)]


# ---------------------------------------------------------------- tokens


def test_a_token_names_its_role_until_it_is_revoked(federation: Federation) -> None:
    service = federation.coordinator
    made = service.create_token(ADMIN, "ci", role="operator", ttl_s=3600)
    assert (made.secret[:3], len(made.secret)) == ("fw_", 46)
    actor = service.authenticate_token(made.secret)
    assert (actor.type, actor.id, actor.role) == ("user", made.token, "operator")
    assert service.revoke_token(ADMIN, made.token).revoked is not None
    with pytest.raises(NotAuthenticated):
        service.authenticate_token(made.secret)
    assert actions(federation)[-3:] == ["token.create", "token.revoke", "login.fail"]


def test_a_token_ends_with_its_time(federation: Federation) -> None:
    made = federation.coordinator.create_token(ADMIN, "ci", role="auditor", ttl_s=60)
    federation.clock.now += 60
    with pytest.raises(NotAuthenticated):
        federation.coordinator.authenticate_token(made.secret)


@pytest.mark.parametrize(
    ("role", "ttl_s"), [("root", 60.0), ("admin", 91 * 86_400.0), ("admin", 0.0)]
)
def test_a_token_of_unknown_role_or_endless_life_is_refused(
    federation: Federation, role: str, ttl_s: float
) -> None:
    with pytest.raises(InvalidInput):
        federation.coordinator.create_token(ADMIN, "x", role=role, ttl_s=ttl_s)
    assert federation.coordinator.list_tokens().items == []


def test_the_first_start_alone_gets_a_bootstrap_token(federation: Federation) -> None:
    secret = federation.coordinator.bootstrap_token()
    assert secret is not None
    assert federation.coordinator.authenticate_token(secret).role == "admin"
    federation.restart()
    assert federation.coordinator.bootstrap_token() is None


def test_an_expired_or_revoked_last_admin_is_not_locked_out(federation: Federation) -> None:
    first = federation.coordinator.bootstrap_token()
    federation.clock.now += 8 * 86_400.0
    second = federation.coordinator.bootstrap_token()
    assert second not in (None, first)
    admin = federation.coordinator.authenticate_token(second or "")
    assert federation.coordinator.bootstrap_token() is None
    federation.coordinator.revoke_token(ADMIN, admin.id)
    assert federation.coordinator.bootstrap_token() is not None


# ---------------------------------------------------------------- once


def test_a_repeat_gets_the_first_answer_and_calls_nothing(federation: Federation) -> None:
    calls = []

    def call() -> StoredAnswer:
        calls.append(federation.coordinator.create_study(ADMIN, federation.study()))
        return StoredAnswer(201, b"made")

    once = federation.coordinator.call_once
    first = once(ADMIN, "key-1", request_digest="sha256:a", call=call)
    again = once(ADMIN, "key-1", request_digest="sha256:a", call=call)
    assert (first.replayed, again.replayed, again.status, again.body) == (False, True, 201, b"made")
    assert len(calls) == 1
    with pytest.raises(Conflict, match="another request"):
        once(ADMIN, "key-1", request_digest="sha256:b", call=call)


def test_a_call_that_fails_keeps_nothing(federation: Federation) -> None:
    def call() -> StoredAnswer:
        federation.coordinator.create_study(ADMIN, federation.study())
        raise NotAllowed("no", "not today")

    with pytest.raises(NotAllowed):
        federation.coordinator.call_once(ADMIN, "k", request_digest="sha256:a", call=call)
    assert federation.coordinator.list_studies().items == []
    assert "study.create" not in actions(federation)


def test_an_answer_with_a_secret_is_not_kept(federation: Federation) -> None:
    def call() -> StoredAnswer:
        return StoredAnswer(201, b"fw_secret", shown_once=True)

    once = federation.coordinator.call_once
    assert once(ADMIN, "k", request_digest="sha256:a", call=call).body == b"fw_secret"
    with pytest.raises(Conflict, match="not kept"):
        once(ADMIN, "k", request_digest="sha256:a", call=call)


# ---------------------------------------------------------------- sites


def test_an_invite_enrols_one_key_once(federation: Federation) -> None:
    service = federation.coordinator
    invite = service.invite_site(ADMIN, "hospital-a", organisation="Hospital A").invite
    member = service.enrol(enrolment(invite), key_id=KEY_ID)
    assert (member.site, member.key_id) == ("hospital-a", KEY_ID)
    assert service.enrol(enrolment(invite), key_id=KEY_ID) == member
    other = hashlib.sha256(bytes.fromhex("cd" * 32)).hexdigest()[:32]
    with pytest.raises(NotAuthenticated, match="used by another key"):
        service.enrol(enrolment(invite, public_key="cd" * 32), key_id=other)
    assert service.find_site_key(KEY_ID) == bytes.fromhex(KEY)
    assert actions(federation).count("site.enrol") == 1


def test_an_invite_names_the_coordinators_key(federation: Federation) -> None:
    invite = federation.coordinator.invite_site(ADMIN, "hospital-a", organisation="A").invite
    member = federation.coordinator.enrol(enrolment(invite), key_id=KEY_ID)
    expected = hashlib.sha256(bytes.fromhex(member.coordinator_key)).hexdigest()[:32]
    assert invite.startswith("fwi_")
    assert invite.rpartition("_")[2] == expected


def test_bad_enrolments_are_refused_and_recorded(federation: Federation) -> None:
    service = federation.coordinator
    old = service.invite_site(ADMIN, "hospital-a", organisation="A").invite
    new = service.invite_site(ADMIN, "hospital-a", organisation="A", ttl_s=60).invite
    cases: list[tuple[Enrolment, str, type[CoordinatorError]]] = [
        (enrolment(old), KEY_ID, NotAuthenticated),
        (enrolment("fwi_" + "x" * 43), KEY_ID, NotAuthenticated),
        (enrolment(new), "0" * 32, NotAuthenticated),
        (enrolment(new, protocol="fedward/0"), KEY_ID, NotAllowed),
    ]
    for document, key_id, error in cases:
        with pytest.raises(error):
            service.enrol(document, key_id=key_id)
    federation.clock.now += 60
    with pytest.raises(NotAuthenticated, match="expired"):
        service.enrol(enrolment(new), key_id=KEY_ID)
    assert "login.fail" in actions(federation)
    assert service.show_site("hospital-a").status == "invited"


def test_a_request_is_admitted_once_and_seen(federation: Federation) -> None:
    key_id = federation.enrol("hospital-a")
    service = federation.coordinator
    assert service.admit(key_id, "nonce-1", created=START + 3) == "hospital-a"
    with pytest.raises(NotAuthenticated) as caught:
        service.admit(key_id, "nonce-1", created=START + 3)
    assert caught.value.name == "replayed-request"
    seen = service.show_site("hospital-a")
    assert (seen.last_seen, seen.clock_skew_s) == ("2027-01-15T08:00:00.000000Z", 3.0)


def test_nonces_outlive_the_signatures_and_are_then_forgotten(federation: Federation) -> None:
    key_id = federation.enrol("hospital-a")
    federation.coordinator.admit(key_id, "nonce-1", created=START)
    federation.clock.now += 7000
    federation.run_due()
    with pytest.raises(NotAuthenticated):
        federation.coordinator.admit(key_id, "nonce-1", created=START)
    federation.clock.now += 1000
    federation.run_due()
    assert federation.coordinator.admit(key_id, "nonce-1", created=START) == "hospital-a"


def test_a_revoked_site_is_told_so_and_may_return_with_a_new_key(federation: Federation) -> None:
    key_id = federation.enrol("hospital-a")
    service = federation.coordinator
    with pytest.raises(Conflict, match="is enrolled"):
        service.invite_site(ADMIN, "hospital-a", organisation="A")
    service.revoke_site(ADMIN, "hospital-a")
    with pytest.raises(NotAuthenticated) as caught:
        service.admit(key_id, "n", created=START)
    assert caught.value.name == "site-revoked"
    invite = service.invite_site(ADMIN, "hospital-a", organisation="A").invite
    service.enrol(enrolment(invite), key_id=KEY_ID)
    assert service.admit(KEY_ID, "n", created=START) == "hospital-a"
