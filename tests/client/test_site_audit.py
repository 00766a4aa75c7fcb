"""The site's log: gapless, canonical, tamper-evident, and written with what it is about."""

import json
import os
import sqlite3
from contextlib import closing

import pytest

from fedward.client.audit import Event
from fedward.client.audit_events import AgentStarted, AgentStopped
from fedward.client.errors import AuditBroken, InvalidState
from fedward.client.journal import Journal
from fedward.protocol import merkle
from fedward.protocol.canonical import canonical_bytes

NOW = 1_790_000_000.25


@pytest.fixture
def journal(tmp_path):
    made = Journal(tmp_path / "agent.db", site="north", policy=None, token_bytes=os.urandom)
    yield made
    made.close()


def fill(journal, count):
    for number in range(count):
        event = Event(AgentStarted(agent_version="1", unfinished=number))
        journal.record(event, now=NOW + number)


def change(tmp_path, *statements):
    """Do what only the owner of the file can do: drop the triggers, then write."""
    with closing(sqlite3.connect(tmp_path / "agent.db", isolation_level=None)) as other:
        names = other.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for (name,) in names:
            other.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            other.execute(statement)


def test_a_record_has_the_agreed_form(journal):
    journal.record(Event(AgentStopped(), outcome="failure", reason="x"), now=NOW)
    (data,) = journal.audit.records()
    record = json.loads(data)
    assert canonical_bytes(record) == data
    assert record["ts"] == "2026-09-21T14:13:20.250000Z"
    assert len(bytes.fromhex(record["n"])) == 16
    del record["n"], record["id"], record["ts"]
    assert record == {
        "v": 1, "seq": 1, "src": "site:north", "actor": {"type": "agent", "id": "north"},
        "action": "agent.stop", "outcome": "failure", "reason": "x",
    }  # fmt: skip


def test_the_root_is_that_of_rfc_9162_over_the_stored_bytes(journal):
    fill(journal, 6)
    leaves = [merkle.leaf_hash(data) for data in journal.audit.records()]
    pairs = [merkle.node_hash(leaves[i], leaves[i + 1]) for i in (0, 2, 4)]
    expected = merkle.node_hash(merkle.node_hash(pairs[0], pairs[1]), pairs[2])
    assert journal.audit.verify().root == expected.hex()


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        (
            "UPDATE audit_events SET bytes = CAST(bytes || ' ' AS BLOB) WHERE seq = 3",
            "record 3",
        ),
        ("DELETE FROM audit_events WHERE seq = 2", "got record 3, expected 2"),
        ("DELETE FROM audit_events WHERE seq = 5", "got 8 nodes, expected 7"),
        ("DELETE FROM audit_nodes WHERE level = 1 AND idx = 0", "node \\(1, 0\\)"),
        ("UPDATE audit_nodes SET hash = zeroblob(32) WHERE level = 2", "node \\(2, 0\\)"),
    ],
)
def test_what_was_changed_behind_its_back_is_found_and_named(journal, tmp_path, statement, told):
    fill(journal, 5)
    change(tmp_path, statement)
    with pytest.raises(AuditBroken, match=told):
        journal.audit.verify()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit_events SET action = 'x'",
        "DELETE FROM audit_events",
        "INSERT OR REPLACE INTO audit_events VALUES (2, 'a', NULL, x'00')",
        "INSERT OR REPLACE INTO audit_nodes VALUES (0, 0, x'00')",
        "DELETE FROM audit_nodes",
    ],
)
def test_sql_that_would_rewrite_the_log_is_refused(journal, tmp_path, statement):
    fill(journal, 3)
    opened = closing(sqlite3.connect(tmp_path / "agent.db", isolation_level=None))
    with opened as other, pytest.raises(sqlite3.IntegrityError):
        other.execute(statement)
    assert journal.audit.verify().size == 3


def test_records_outside_a_transaction_are_refused(journal):
    with pytest.raises(ValueError, match="inside a transaction"):
        journal.audit.append(Event(AgentStopped()), now=NOW)


def test_a_journal_of_a_newer_agent_is_refused(journal, tmp_path):
    change(tmp_path, "PRAGMA user_version = 99")
    with pytest.raises(InvalidState, match="format 99"):
        Journal(tmp_path / "agent.db", site="north", policy=None, token_bytes=os.urandom)
