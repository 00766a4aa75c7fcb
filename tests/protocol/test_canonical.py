import hashlib
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedward.protocol.canonical import (
    canonical_bytes,
    digest_hex,
    document_digest,
    sha256_digest,
    sha256_digest_of,
)
from fedward.protocol.documents import AppRef, Plan, RoundRules
from fedward.protocol.errors import InvalidDocument

RFC8785_INPUT = r"""{
  "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
  "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
  "literals": [null, true, false]
}"""
RFC8785_HEX = """
7b 22 6c 69 74 65 72 61 6c 73 22 3a 5b 6e 75 6c 6c 2c 74 72 75 65 2c 66 61 6c 73 65 5d 2c 22 6e
75 6d 62 65 72 73 22 3a 5b 33 33 33 33 33 33 33 33 33 2e 33 33 33 33 33 33 33 2c 31 65 2b 33 30
2c 34 2e 35 2c 30 2e 30 30 32 2c 31 65 2d 32 37 5d 2c 22 73 74 72 69 6e 67 22 3a 22 e2 82 ac 24
5c 75 30 30 30 66 5c 6e 41 27 42 5c 22 5c 5c 5c 5c 5c 22 2f 22 7d
"""

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.floats(2.0**53, 1e22)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def test_the_example_of_rfc_8785_section_3_2_4_gives_its_bytes() -> None:
    assert canonical_bytes(json.loads(RFC8785_INPUT)) == bytes.fromhex(RFC8785_HEX)


def test_keys_are_sorted_by_utf_16_code_units() -> None:
    # RFC 8785 section 3.2.3: U+1F600 is a surrogate pair (D83D…) and comes before U+FB33
    keys = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\x80", "\u00f6"]
    got = list(json.loads(canonical_bytes(dict.fromkeys(keys, 0))))
    assert got == ["\r", "1", "\x80", "\u00f6", "\u20ac", "\U0001f600", "\ufb33"]


@pytest.mark.parametrize(
    ("number", "text"),
    [  # RFC 8785 appendix B
        (0x0000000000000000, b"0"),
        (0x8000000000000000, b"0"),
        (0x0000000000000001, b"5e-324"),
        (0x7FEFFFFFFFFFFFFF, b"1.7976931348623157e+308"),
        (0x4340000000000000, b"9007199254740992"),
        (0x4430000000000000, b"295147905179352830000"),
        (0x44B52D02C7E14AF5, b"9.999999999999997e+22"),
        (0x44B52D02C7E14AF6, b"1e+23"),
        (0x444B1AE4D6E2EF4E, b"999999999999999700000"),
        (0x444B1AE4D6E2EF50, b"1e+21"),
        (0x3EB0C6F7A0B5ED8C, b"9.999999999999997e-7"),
        (0x3EB0C6F7A0B5ED8D, b"0.000001"),
        (0x41B3DE4355555555, b"333333333.3333333"),
        (0xBECBF647612F3696, b"-0.0000033333333333333333"),
    ],
)
def test_numbers_of_rfc_8785_appendix_b(number: int, text: bytes) -> None:
    assert canonical_bytes(struct.unpack(">d", number.to_bytes(8, "big"))[0]) == text


@given(json_values)
def test_canonical_bytes_survive_a_round_trip_through_json(value: object) -> None:
    once = canonical_bytes(value)  # type: ignore[arg-type]  # hypothesis types recursion loosely
    assert canonical_bytes(json.loads(once)) == once


@pytest.mark.parametrize("number", [2.0**53, 1e15, 1e18, -1e18, 2.0**68, 1e21, 1e22])
def test_large_floats_survive_a_round_trip_through_json(number: float) -> None:
    once = canonical_bytes({"flag": True, "weights": [number, 1, None]})
    assert canonical_bytes(json.loads(once)) == once


@pytest.mark.parametrize("number", [2**53 + 1, 2**63 - 1, 10**21, 10**350, 10**400])
def test_an_integer_that_would_change_is_refused(number: int) -> None:
    with pytest.raises(InvalidDocument, match="exceeds safe integer domain"):
        canonical_bytes([number])


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), {"a": -(2**53) - 1}, "\ud800", {"\ud800": 1}, {1: 2}, {1, 2}],
)
def test_what_has_no_canonical_form_is_refused(value: object) -> None:
    with pytest.raises(InvalidDocument, match="no canonical form"):
        canonical_bytes(value)  # type: ignore[arg-type]  # wrong on purpose


def test_nesting_that_is_too_deep_is_refused() -> None:
    value: list[object] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(InvalidDocument):
        canonical_bytes(value)  # type: ignore[arg-type]  # list is invariant
    while value:  # freed step by step: the destructor would recurse as deep
        value = value.pop()  # type: ignore[assignment]  # lists all the way down


def test_a_plan_has_the_digest_of_its_canonical_json() -> None:
    plan = Plan(
        name="p",
        study="s",
        app=AppRef(recipe="tabular", config={"b": 1, "a": 0.5}),
        model="sha256:" + "0" * 64,
        rounds=RoundRules(count=3),
    )
    text = canonical_bytes(plan)
    start = b'{"app":{"bundle":null,"config":{"a":0.5,"b":1},"evaluate_config":{},"recipe":"'
    assert text.startswith(start)
    assert document_digest(plan) == "sha256:" + hashlib.sha256(text).hexdigest()
    assert Plan.model_validate_json(text) == plan


def test_digest_of_abc_is_the_known_one() -> None:
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert sha256_digest(b"abc") == f"sha256:{expected}"
    assert sha256_digest_of([b"a", memoryview(b"bc")]) == f"sha256:{expected}"
    assert digest_hex(f"sha256:{expected}") == expected


@pytest.mark.parametrize("digest", ["", "sha256:", "sha256:AB", "ab" * 32, "sha256:" + "G" * 64,
                                    "sha256:" + "A" * 64, "sha256:" + "0" * 65])  # fmt: skip
def test_what_is_no_digest_is_refused(digest: str) -> None:
    with pytest.raises(InvalidDocument, match="expected sha256"):
        digest_hex(digest)
