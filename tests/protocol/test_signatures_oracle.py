"""Our signatures against http-message-signatures, an implementation of RFC 9421 by others.

Three laws: both make the same bytes (Ed25519 has one signature per message), each believes what
the other signed, and whatever we accept the library accepts too.
"""

import base64
import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import http_message_signatures as hms
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedward.protocol.errors import ClockSkew, InvalidSignature
from fedward.protocol.signatures import (
    REQUEST_TAG,
    RESPONSE_TAG,
    new_private_key,
    public_bytes,
    sign,
    sign_request,
    sign_response,
    verify_request,
    verify_response,
)

AGENT = new_private_key(bytes(range(32)))
COORDINATOR = new_private_key(b"\x07" * 32)
KEYS = {"agent-key": public_bytes(AGENT), "coordinator-key": public_bytes(COORDINATOR)}
NOW = 1_790_000_000
FIELDS = (
    "Content-Type", "Content-Range", "Fedward-Protocol",
    "Idempotency-Key", "Upload-Fence", "Upload-Offset",
)  # fmt: skip
SAFE = "abcXYZ019-._~!$&'()*+,;=:@/"
TEXT = "abcXYZ019+/=._-"

methods = st.sampled_from(["GET", "put", "Post", "DELETE", "X-OWN"])
encoded = st.lists(st.sampled_from([*SAFE, "%20", "%C3%A9", "%2f"]), max_size=20).map("".join)
queries = st.one_of(st.just(""), encoded.map("?".__add__), encoded.map("?a=?".__add__))
urls = st.tuples(encoded, queries).map(lambda parts: "/" + "".join(parts))
values = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30) | st.sampled_from(
    [" padded\t", "", "a\tb", 'say "\\"', "a, b"]
)
names = st.sampled_from([*FIELDS, "X-Other"]).flatmap(
    lambda name: st.sampled_from([name, name.lower(), name.upper()])
)
header_sets = st.dictionaries(names, values).map(
    lambda headers: {name: v for name, v in headers.items() if only_one(name, headers)}
)
nonces = st.text(TEXT, min_size=16, max_size=128)


def only_one(name: str, headers: dict[str, str]) -> bool:
    return sum(other.lower() == name.lower() for other in headers) == 1


@dataclass
class Request:
    method: str
    url: str
    headers: dict[str, str]


@dataclass
class Response:
    status_code: int
    headers: dict[str, str]
    request: Request


class Resolver(hms.HTTPSignatureKeyResolver):
    def resolve_public_key(self, key_id: str) -> Any:
        return {"agent-key": AGENT, "coordinator-key": COORDINATOR}[key_id].public_key()

    def resolve_private_key(self, key_id: str) -> Any:
        return {"agent-key": AGENT, "coordinator-key": COORDINATOR}[key_id]


class Verifier(hms.HTTPMessageVerifier):
    def validate_created_and_expires(self, sig_input: Any, max_age: Any = None) -> None:
        """No clock of the machine; our tests have their own."""


def components(first: tuple[str, ...], headers: dict[str, str]) -> tuple[str, ...]:
    lower = {name.lower() for name in headers}
    return first + tuple(field.lower() for field in FIELDS if field.lower() in lower)


def of_request(headers: dict[str, str]) -> tuple[str, ...]:
    return components(("@method", "@path", "@query", "content-digest"), headers)


def of_response(headers: dict[str, str]) -> tuple[str, ...]:
    return components(("@status", "content-digest", '"signature";req;key="fedward"'), headers)


def library_signs(message: Any, covered: tuple[str, ...], body: bytes, **parameters: Any) -> None:
    message.headers["Content-Digest"] = hms.ContentDigest.create(body)
    hms.HTTPMessageSigner(
        signature_algorithm=hms.algorithms.ED25519, key_resolver=Resolver()
    ).sign(
        message, created=datetime.fromtimestamp(NOW, UTC), label="fedward",
        covered_component_ids=covered, use_existing_digest=True, **parameters,
    )  # fmt: skip


def library_verifies(message: Any, covered: tuple[str, ...], body: bytes, tag: str) -> None:
    results = Verifier(signature_algorithm=hms.algorithms.ED25519, key_resolver=Resolver()).verify(
        message, max_age=None, expect_tag=tag, require_components=covered, body=body
    )
    assert [result.label for result in results] == ["fedward"]


def we_sign(method: str, url: str, headers: dict[str, str], body: bytes, nonce: str) -> Any:
    return headers | sign_request(
        AGENT, key_id="agent-key", method=method, url=url, headers=headers, body=body,
        now=NOW, nonce=nonce,
    )  # fmt: skip


# ---------------------------------------------------------------- both make the same bytes


@settings(deadline=None)
@given(methods, urls, header_sets, st.binary(max_size=100), nonces)
def test_library_and_we_sign_and_verify_the_same_requests(
    method: str, url: str, headers: dict[str, str], body: bytes, nonce: str
) -> None:
    ours = we_sign(method, url, headers, body, nonce)
    theirs = Request(method.upper(), "http://x" + url, dict(headers))
    library_signs(
        theirs, of_request(headers), body, key_id="agent-key", nonce=nonce, tag=REQUEST_TAG
    )
    assert ours == theirs.headers
    library_verifies(
        Request(method.upper(), "http://x" + url, ours), of_request(headers), body, REQUEST_TAG
    )
    got = verify_request(
        method=method, url=url, headers=theirs.headers, body=body, find_key=KEYS.get, now=NOW
    )
    assert (got.key_id, got.nonce, got.created) == ("agent-key", nonce, NOW)


@settings(deadline=None)
@given(st.integers(200, 599), urls, header_sets, header_sets, st.binary(max_size=100))
def test_library_and_we_sign_and_verify_the_same_responses(
    status: int, url: str, asked: dict[str, str], headers: dict[str, str], body: bytes
) -> None:
    asked = we_sign("GET", url, asked, b"", "n" * 22)
    request = Request("GET", "http://x" + url, asked)
    added = sign_response(
        COORDINATOR, key_id="coordinator-key", status=status, headers=headers, body=body,
        request=("GET", url, asked), now=NOW,
    )  # fmt: skip
    theirs = Response(status, dict(headers), request)
    library_signs(theirs, of_response(headers), body, key_id="coordinator-key", tag=RESPONSE_TAG)
    assert headers | added == theirs.headers
    library_verifies(
        Response(status, headers | added, request), of_response(headers), body, RESPONSE_TAG
    )
    got = verify_response(
        status=status, headers=theirs.headers, body=body, request=("GET", url, asked),
        find_key=KEYS.get,
    )  # fmt: skip
    assert (got.key_id, got.nonce, got.created) == ("coordinator-key", "", NOW)


# ---------------------------------------------------------------- we are never the more lenient


def accepted(method: str, url: str, headers: dict[str, str], body: bytes) -> bool:
    """Whether we accept it; if so, the library must as well."""
    try:
        verify_request(
            method=method, url=url, headers=headers, body=body, find_key=KEYS.get, now=NOW
        )
    except ClockSkew:
        pass  # the signature was right
    except InvalidSignature:
        return False
    request = Request(method.upper(), "http://x" + url, dict(headers))
    library_verifies(request, of_request(headers), body, REQUEST_TAG)
    return True


@settings(deadline=None, max_examples=300)
@given(
    st.sampled_from(["Content-Type", "Content-Digest", "Signature-Input", "Signature"]),
    st.integers(0, 400),
    st.integers(0, 2),
    st.text(st.characters(max_codepoint=255), max_size=2),
)
def test_what_is_accepted_after_a_change_of_some_characters_is_right_for_the_library(
    name: str, at: int, cut: int, put: str
) -> None:
    headers = we_sign("POST", "/x?a=1", {"Content-Type": "text/plain"}, b"body", "n" * 22)
    at %= len(headers[name]) + 1
    changed = headers[name][:at] + put + headers[name][at + cut :]
    same = changed.strip(" \t") == headers[name]
    ok = accepted("POST", "/x?a=1", headers | {name: changed}, b"body")
    assert ok or not same


parameters = st.lists(
    st.sampled_from(
        [
            ";created=1790000000", ";created=01790000000", ";created=-1", ";created=1.0",
            ";created", ';keyid="agent-key"', ';keyid="agent\\"key"', ";keyid=agent-key",
            ';nonce="nnnnnnnnnnnnnnnn"', ';nonce="n n"', ';alg="ed25519"', ";alg=ed25519",
            ';alg="rsa-pss-sha512"', ';tag="fedward-agent"', ';tag="fedward-coordinator"',
            ";expires=1790000060", "; created=1790000000", ";x", ";x=?1",
        ]
    ),
    max_size=6,
).map("".join)  # fmt: skip
RIGHT = ';created=1790000000;keyid="agent-key"{};nonce="nnnnnnnnnnnnnnnn"{};tag="fedward-agent"'


def signed_by_hand(params: str, listed: str | None = None) -> dict[str, str]:
    digest = f"sha-256=:{base64.b64encode(hashlib.sha256(b'').digest()).decode()}:"
    listed = listed or '("@method" "@path" "@query" "content-digest")'
    base = (
        f'"@method": GET\n"@path": /x\n"@query": ?\n"content-digest": {digest}\n'
        f'"@signature-params": {listed}{params}'
    )
    raw = base64.b64encode(sign(AGENT, base.encode())).decode()
    return {
        "Content-Digest": digest,
        "Signature-Input": f"fedward={listed}{params}",
        "Signature": f"fedward=:{raw}:",
    }


@settings(deadline=None, max_examples=300)
@given(parameters)
def test_parameters_that_are_accepted_are_right_for_the_library(params: str) -> None:
    accepted("GET", "/x", signed_by_hand(params), b"")


@pytest.mark.parametrize("first", ["", ';alg="ed25519"'])
@pytest.mark.parametrize("second", ["", ';alg="ed25519"'])
def test_the_algorithm_may_be_named_once_at_most(first: str, second: str) -> None:
    headers = signed_by_hand(RIGHT.format(first, second))
    assert accepted("GET", "/x", headers, b"") == (not (first and second))


# ---------------------------------------------------------------- what the library would take


@pytest.mark.parametrize(
    "listed",
    [
        '("@path" "@method" "@query" "content-digest")',
        '("@method" "@path" "@query" "content-digest" "content-digest")',
        '("@method"  "@path" "@query" "content-digest")',
        '( "@method" "@path" "@query" "content-digest" )',
        '("@method" "@path" "@query" "content-digest";sf)',
        '("@method" "@path" "@query" "content-digest" "host")',
    ],
)
def test_another_list_of_components_is_refused(listed: str) -> None:
    with pytest.raises(InvalidSignature, match="signature-input"):
        checked(signed_by_hand(RIGHT.format("", ""), listed) | {"Host": "x"})


def checked(headers: dict[str, str], url: str = "/x") -> None:
    verify_request(method="GET", url=url, headers=headers, body=b"", find_key=KEYS.get, now=NOW)


@pytest.mark.parametrize("name", ["content-type", "SIGNATURE", "signature-input", "CONTENT-DIGEST"])
def test_two_entries_of_one_name_are_refused(name: str) -> None:
    headers = we_sign("GET", "/x", {"Content-Type": "a"}, b"", "n" * 22)
    value = next(v for n, v in headers.items() if n.lower() == name.lower())
    with pytest.raises(InvalidSignature, match="got two, expected one"):
        checked(headers | {name: value})


@pytest.mark.parametrize("name", ["Signature-Input", "Signature", "Content-Digest", "Content-Type"])
def test_a_line_sent_twice_and_joined_is_refused(name: str) -> None:
    headers = we_sign("GET", "/x", {"Content-Type": "a"}, b"", "n" * 22)
    with pytest.raises(InvalidSignature):
        checked(headers | {name: f"{headers[name]}, {headers[name]}"})


@pytest.mark.parametrize(
    "value", ["a\r\n b", "a\nb", "a\rb", "a\x00b", "a\x7fb", "\u00e9", "a\n", "\u2028", "\x0ba"]
)
def test_line_ends_folds_and_non_ascii_are_neither_signed_nor_believed(value: str) -> None:
    headers = we_sign("GET", "/x", {"Content-Type": "a"}, b"", "n" * 22)
    with pytest.raises(InvalidSignature, match="expected printable ASCII"):
        we_sign("GET", "/x", {"Content-Type": value}, b"", "n" * 22)
    for name in headers:
        with pytest.raises(InvalidSignature, match="expected printable ASCII"):
            checked(headers | {name: value})


@pytest.mark.parametrize("name", ["Signature-Input", "Signature", "Content-Digest", "Content-Type"])
def test_spaces_around_a_value_do_no_harm(name: str) -> None:
    headers = we_sign("GET", "/x", {"Content-Type": "a"}, b"", "n" * 22)
    checked(headers | {name: f" \t{headers[name]}\t "})


def test_a_signature_has_one_spelling() -> None:
    headers = signed_by_hand(RIGHT.format("", ""))
    checked(headers)
    last = headers["Signature"][-4]
    digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    other = headers["Signature"][:-4] + digits[digits.index(last) + 1] + "==:"
    assert base64.b64decode(other[9:-1]) == base64.b64decode(headers["Signature"][9:-1])
    for changed in (other, headers["Signature"] + ";a=1", headers["Signature"].replace("==", "")):
        with pytest.raises(InvalidSignature, match="expected 64 bytes"):
            checked(headers | {"Signature": changed})


@pytest.mark.parametrize(
    ("before", "after", "ok"),
    [
        ('gw=("a, b");x="fedward=",', "", True), ("", ', a=1, b=:AA==:, c="x,y"', True),
        ("", ", fedward=()", False), ("fedward=1, ", "", False), ("", ",", False),
        ("", ", ", False), (",", "", False), ('gw="\\", ', "", False), ('gw=", ', "", False),
        ("", ", gw", False),
    ],
)  # fmt: skip
def test_members_of_other_services_are_left_alone(before: str, after: str, ok: bool) -> None:
    headers = signed_by_hand(RIGHT.format("", ""))
    for name in ("Signature", "Signature-Input"):
        changed = headers | {name: before + headers[name] + after}
        if ok:
            checked(changed)
        else:
            with pytest.raises(InvalidSignature, match=name.lower()):
                checked(changed)


@pytest.mark.parametrize(
    "bad", ['a"b' * 8, "a\\" * 8, "a b" * 8, "é" * 16, 'n";tag="x' * 3, "n\n" * 9]
)
def test_a_key_id_or_nonce_of_other_characters_is_not_signed(bad: str) -> None:
    for change in ({"key_id": bad}, {"nonce": bad}):
        arguments: Any = {"key_id": "k", "nonce": "n" * 16} | change
        with pytest.raises(InvalidSignature, match="cannot be signed"):
            sign_request(
                AGENT, method="GET", url="/x", headers={}, body=b"", now=NOW, **arguments
            )  # fmt: skip


@pytest.mark.parametrize("method", ["", "GE T", "GET\n", "GÉT", "\u00dfX"])
def test_a_method_that_is_no_token_is_not_signed(method: str) -> None:
    with pytest.raises(InvalidSignature, match="method"):
        we_sign(method, "/x", {}, b"", "n" * 22)


@pytest.mark.parametrize("url", ["/x#part", "/x\n", "/x?a b", "/x?%", "x", "/x?a\x7f", "/%2"])
def test_a_url_with_a_fragment_or_other_characters_is_not_signed(url: str) -> None:
    with pytest.raises(InvalidSignature, match="url"):
        we_sign("GET", url, {}, b"", "n" * 22)


def test_a_hostile_url_or_field_costs_linear_time() -> None:
    """Backtracking would need years for these."""
    headers = signed_by_hand(RIGHT.format("", ""))
    with pytest.raises(InvalidSignature, match="url"):
        checked(headers, url="/" + "a%20" * 100_000 + "\n")
    for text in ('a="' * 1300, "a=b," * 1000, "a" * 4096, 'a=""' + '""' * 2000 + "\\"):
        with pytest.raises(InvalidSignature, match="signature-input"):
            checked(headers | {"Signature-Input": text})
