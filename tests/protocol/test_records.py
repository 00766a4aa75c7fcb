"""Audit records: their form, their ids, and what is left out."""

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedward.protocol.records import ENTROPY_BYTES, NOTHING, Subject, record_bytes, uuid7
from fedward.protocol.timestamps import from_timestamp, to_timestamp


def make(*, subject: Subject = NOTHING, entropy: bytes = bytes(ENTROPY_BYTES)) -> bytes:
    return record_bytes(
        seq=1,
        now=1.5,
        source="site:a",
        actor={"type": "agent", "id": "a", "role": None},
        action="agent.start",
        outcome="success",
        reason=None,
        subject=subject,
        details={},
        entropy=entropy,
    )


def test_a_record_is_canonical_and_leaves_out_what_is_not_known() -> None:
    assert make() == (
        b'{"action":"agent.start","actor":{"id":"a","type":"agent"},"id":"00000000-05dc-7000-8000-'
        b'000000000000","n":"00000000000000000000000000000000","outcome":"success","seq":1,'
        b'"src":"site:a","ts":"1970-01-01T00:00:01.500000Z","v":1}'
    )


def test_round_0_is_a_round_and_is_kept() -> None:
    record = json.loads(make(subject=Subject("task", "task-1", run="run-1", round=0)))
    assert record["round"] == 0 and record["object"] == {"type": "task", "id": "task-1"}


def test_id_and_n_use_different_bytes_of_the_entropy() -> None:
    entropy = bytes(range(ENTROPY_BYTES))
    assert json.loads(make(entropy=entropy))["n"] == entropy[10:].hex()
    with pytest.raises(ValueError, match="got 10 bytes, expected 26"):
        make(entropy=bytes(10))


@given(st.floats(0, 2e10), st.binary(min_size=10, max_size=10))
def test_ids_are_uuid_version_7_in_order_of_time(now: float, entropy: bytes) -> None:
    made = UUID(uuid7(now, entropy=entropy))
    assert (made.version, made.variant) == (7, "specified in RFC 4122")
    assert made.int >> 80 == int(now * 1000)


@given(st.integers(0, 4_000_000_000_000_000))
def test_a_timestamp_keeps_microseconds(microseconds: int) -> None:
    text = to_timestamp(microseconds / 1e6)
    assert abs(from_timestamp(text) - microseconds / 1e6) < 1e-6


def test_a_text_that_is_no_utc_time_is_refused() -> None:
    for text in ("2026-02-30T00:00:00.000000Z", "2026-01-01T00:00:00", "now"):
        with pytest.raises(ValueError, match=r"time data|day is out of range"):
            from_timestamp(text)
