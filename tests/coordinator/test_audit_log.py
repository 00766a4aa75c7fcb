"""The audit log: what a record holds, what tampering leaves, what the triggers refuse."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from fedward.coordinator.actors import ANONYMOUS
from fedward.coordinator.errors import InvalidInput, NotFound, Unavailable
from fedward.protocol import merkle

from .federation import ADMIN, Federation


@pytest.fixture
def filled(federation: Federation) -> Federation:
    federation.prepare()
    return federation


@contextmanager
def raw(federation: Federation, *, triggers: bool) -> Iterator[sqlite3.Connection]:
    """Open the file as somebody with access to the disk would."""
    with closing(sqlite3.connect(federation.folder / "fedward.sqlite")) as connection:
        names = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall()
        for (name,) in names if not triggers else []:
            connection.execute(f"DROP TRIGGER {name}")
        yield connection
        connection.commit()


def test_a_record_says_who_did_what_to_what(filled: Federation) -> None:
    events = filled.coordinator.audit_events(ADMIN)
    created = next(e for e in events if e.record["action"] == "study.create")
    assert created.record["actor"] == {"id": "token-admin0", "role": "admin", "type": "user"}
    assert created.record["object"] == {"id": "sepsis", "type": "study"}
    assert (created.record["outcome"], created.record["study"]) == ("success", "sepsis")
    assert created.record["ts"] == "2027-01-15T08:00:00.000000Z"
    assert len(bytes.fromhex(str(created.record["n"]))) == 16
    assert [e.seq for e in events] == list(range(1, len(events) + 1))


def test_reading_the_log_is_on_the_log(filled: Federation) -> None:
    before = filled.coordinator.audit_head().size
    filled.coordinator.audit_events(ADMIN, after_seq=3)
    (read,) = filled.coordinator.audit_events(ADMIN, after_seq=before)
    assert (read.record["action"], read.record["d"]) == (
        "audit.read",
        {"after_seq": 3, "count": before - 3},
    )


def test_every_record_has_a_proof_that_verifies(filled: Federation) -> None:
    size = filled.coordinator.audit_head().size
    for seq in range(1, size + 1):
        proof = filled.coordinator.audit_inclusion(seq)
        merkle.verify_inclusion(
            bytes.fromhex(proof.leaf_hash),
            seq - 1,
            size,
            [bytes.fromhex(part) for part in proof.proof],
            bytes.fromhex(proof.root),
        )
    with pytest.raises(NotFound):
        filled.coordinator.audit_inclusion(size + 1)


def test_every_earlier_log_is_a_prefix_of_the_newest(filled: Federation) -> None:
    size = filled.coordinator.audit_head().size
    for first in range(size + 1):
        proof = filled.coordinator.audit_consistency(first)
        merkle.verify_consistency(
            first,
            size,
            [bytes.fromhex(part) for part in proof.proof],
            bytes.fromhex(proof.first_root),
            bytes.fromhex(proof.second_root),
        )
    with pytest.raises(InvalidInput):
        filled.coordinator.audit_consistency(size + 1)


def test_an_untouched_log_verifies(filled: Federation) -> None:
    check = filled.coordinator.verify_audit()
    head = filled.coordinator.audit_head()
    assert (check.ok, check.size, check.root) == (True, head.size, head.root)


TAMPERING = {
    "another type": ("UPDATE audit_events SET record = CAST(record AS TEXT) WHERE seq = 3", 3),
    "changed bytes": (
        "UPDATE audit_events SET record = CAST(replace(record, 'success', 'failure') AS BLOB) "
        "WHERE seq = 3",
        3,
    ),
    "a changed column": ("UPDATE audit_events SET actor = 'user:mallory' WHERE seq = 4", 4),
    "a removed record": ("DELETE FROM audit_events WHERE seq = 2", 3),
    "a changed node": ("UPDATE audit_nodes SET hash = zeroblob(32) WHERE level = 1 AND idx = 1", 4),
    "a removed node": ("DELETE FROM audit_nodes WHERE level = 0 AND idx = 4", 5),
    "an added node": ("INSERT INTO audit_nodes VALUES (9, 9, zeroblob(32))", None),
    "a cut end": ("DELETE FROM audit_events WHERE seq > 5", None),
}


@pytest.mark.parametrize("what", TAMPERING)
def test_tampering_by_sql_is_found(filled: Federation, what: str) -> None:
    statement, seq = TAMPERING[what]
    with raw(filled, triggers=False) as connection:
        assert connection.execute(statement).rowcount > 0
    check = filled.coordinator.verify_audit()
    assert (check.ok, check.first_bad_seq) == (False, seq)
    assert check.problem


REFUSED = (
    "UPDATE audit_events SET actor = 'user:mallory' WHERE seq = 4",
    "DELETE FROM audit_events WHERE seq = 4",
    "INSERT OR REPLACE INTO audit_events SELECT * FROM audit_events WHERE seq = 4",
    "INSERT OR REPLACE INTO audit_events SELECT seq + 7, 'x' || id, record, leaf_hash, ts, action, "
    "outcome, actor, study, run, round FROM audit_events WHERE seq = 4",
    "UPDATE audit_nodes SET hash = zeroblob(32)",
    "DELETE FROM audit_nodes",
    "INSERT OR REPLACE INTO audit_nodes VALUES (0, 0, zeroblob(32))",
)


@pytest.mark.parametrize("statement", REFUSED)
def test_the_tables_refuse_all_but_appending(filled: Federation, statement: str) -> None:
    with raw(filled, triggers=True) as connection, pytest.raises(sqlite3.IntegrityError):
        connection.execute(statement)
    assert filled.coordinator.verify_audit().ok


def test_denials_are_recorded_once_and_counted(federation: Federation) -> None:
    for _ in range(5):
        federation.coordinator.record_denial(ANONYMOUS, "token.use", reason="unknown-token")
    federation.coordinator.record_denial(ADMIN, "models.read", reason="role-lacks-permission")
    federation.clock.now += 61
    federation.run_due()
    federation.coordinator.record_denial(ANONYMOUS, "token.use", reason="unknown-token")
    records = [e.record for e in federation.coordinator.audit_events(ADMIN, after_seq=1)]
    assert [(r["action"], r["reason"], r["d"]["repeats"]) for r in records] == [  # type: ignore[index]  # JSON
        ("login.fail", "unknown-token", 0),
        ("access.deny", "role-lacks-permission", 0),
        ("login.fail", "unknown-token", 4),
        ("login.fail", "unknown-token", 0),
    ]


def test_the_record_is_hashed_as_stored(filled: Federation) -> None:
    with raw(filled, triggers=True) as connection:
        rows = connection.execute("SELECT record, leaf_hash FROM audit_events").fetchall()
    for record, leaf in rows:
        assert merkle.leaf_hash(record) == leaf
        assert json.loads(record)["v"] == 1


def test_no_secret_is_in_the_database(federation: Federation) -> None:
    token = federation.coordinator.create_token(ADMIN, "ci", role="operator", ttl_s=3600)
    invite = federation.coordinator.invite_site(ADMIN, "hospital-a", organisation="A")
    federation.store.close()
    data = b"".join(p.read_bytes() for p in Path(federation.folder).glob("fedward.sqlite*"))
    assert token.token.encode() in data
    assert token.secret.encode() not in data
    assert invite.invite.encode() not in data


@pytest.mark.parametrize(
    "statement",
    ["DELETE FROM audit_events WHERE seq > 5", "DELETE FROM audit_nodes WHERE level = 0"],
)
def test_nothing_changes_where_the_log_cannot_be_written(
    filled: Federation, statement: str
) -> None:
    with raw(filled, triggers=False) as connection:
        connection.execute(statement)
    with pytest.raises(Unavailable) as caught:
        for name in ("audit-1", "audit-2"):  # an even size reads no node, an odd one does
            filled.coordinator.invite_site(ADMIN, name, organisation="A")
    assert caught.value.name == "audit-unavailable"
    assert "audit-2" not in [site.site for site in filled.coordinator.list_sites().items]
