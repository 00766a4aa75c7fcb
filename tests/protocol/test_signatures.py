import base64
import hashlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedward.protocol.errors import ClockSkew, DigestMismatch, InvalidSignature
from fedward.protocol.signatures import (
    new_private_key,
    private_seed,
    public_bytes,
    public_hex,
    sign,
    sign_request,
    sign_response,
    verify,
    verify_request,
    verify_response,
)

AGENT = new_private_key(bytes(range(32)))
OTHER = new_private_key(bytes(range(1, 33)))
COORDINATOR = new_private_key(b"\x07" * 32)
KEYS = {"agent-key": public_bytes(AGENT), "coordinator-key": public_bytes(COORDINATOR)}
NOW = 1_790_000_000.0
REQUEST: dict[str, Any] = {
    "method": "PUT",
    "url": "/agent/v1/uploads/task-abc123?part=2&x=%20",
    "headers": {"Content-Type": "application/octet-stream", "Upload-Offset": "8"},
    "body": b"chunk",
}
RESPONSE: dict[str, Any] = {
    "status": 200,
    "headers": {"Content-Type": "application/json"},
    "body": b'{"ok":1}',
}


def signed(key: Any = AGENT, **changes: Any) -> dict[str, Any]:
    """A request with its signature, as a verifier sees it."""
    request = REQUEST | {"key_id": "agent-key", "now": NOW, "nonce": "n" * 22} | changes
    added = sign_request(key, **request)
    seen = {name: request[name] for name in REQUEST}
    return seen | {"headers": request["headers"] | added}


def checked(request: dict[str, Any], now: float = NOW) -> Any:
    return verify_request(**request, find_key=KEYS.get, now=now)


def with_header(request: dict[str, Any], name: str, value: str | None) -> dict[str, Any]:
    kept = {n: v for n, v in request["headers"].items() if n.lower() != name.lower()}
    return request | {"headers": kept if value is None else kept | {name: value}}


# ---------------------------------------------------------------- keys and data


def test_rfc_8032_test_1_gives_the_known_key_and_signature() -> None:
    key = new_private_key(
        bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
    )
    public = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    signature = sign(key, b"")
    assert public_hex(key) == public
    assert signature.hex() == (
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555"
        "fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
    )
    verify(bytes.fromhex(public), signature, b"")
    assert new_private_key(private_seed(key)).sign(b"x") == key.sign(b"x")


def test_a_wrong_signature_over_data_is_refused() -> None:
    signature = sign(AGENT, b"data")
    for public, made, data in (
        (KEYS["agent-key"], signature, b"date"),
        (KEYS["coordinator-key"], signature, b"data"),
        (KEYS["agent-key"], signature[:-1], b"data"),
        (b"short", signature, b"data"),
    ):
        with pytest.raises(InvalidSignature):
            verify(public, made, data)


# ---------------------------------------------------------------- requests


def test_a_signed_request_says_who_signed_it_and_when() -> None:
    got = checked(signed())
    assert (got.key_id, got.nonce, got.created) == ("agent-key", "n" * 22, NOW)


def test_the_known_signature_base_of_rfc_9421_is_what_is_signed() -> None:
    headers = signed()["headers"]
    digest = base64.b64encode(hashlib.sha256(b"chunk").digest()).decode()
    params = headers["Signature-Input"].removeprefix("fedward=")
    base = (
        '"@method": PUT\n'
        '"@path": /agent/v1/uploads/task-abc123\n'
        '"@query": ?part=2&x=%20\n'
        f'"content-digest": sha-256=:{digest}:\n'
        '"content-type": application/octet-stream\n'
        '"upload-offset": 8\n'
        f'"@signature-params": {params}'
    )
    raw = base64.b64decode(headers["Signature"].removeprefix("fedward=:").removesuffix(":"))
    assert 'tag="fedward-agent"' in params
    verify(KEYS["agent-key"], raw, base.encode())


def test_a_request_without_body_query_and_content_type_is_signed_whole() -> None:
    request = signed(method="GET", url="/agent/v1/next", headers={}, body=b"")
    assert checked(request).key_id == "agent-key"
    for change in ({"url": "/agent/v1/next?wait=1"}, {"body": b"x"}, {"method": "POST"}):
        with pytest.raises(InvalidSignature):
            checked(request | change)
    with pytest.raises(InvalidSignature, match="content-type"):
        checked(with_header(request, "content-type", "text/plain"))


@pytest.mark.parametrize(
    "change",
    [
        {"method": "POST"},
        {"url": "/agent/v1/uploads/task-abc124?part=2&x=%20"},
        {"url": "/agent/v1/uploads/task-abc123?part=3&x=%20"},
        {"url": "/agent/v1/uploads/task-abc123"},
        {"url": "/agent/v1/uploads/task-abc123?part=2&x=+"},
    ],
)
def test_a_change_of_method_path_or_query_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidSignature):
        checked(signed() | change)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Content-Type", "text/plain"), ("Content-Type", None), ("Upload-Offset", "16"),
        ("Upload-Offset", None), ("Upload-Fence", "3"), ("Idempotency-Key", "k"),
        ("Fedward-Protocol", "fedward/2"), ("Content-Digest", None), ("Signature", None),
        ("Signature-Input", None), ("Signature", "fedward=:AAAA:"), ("Signature", "%%"),
        ("Signature-Input", "fedward=()"), ("Signature-Input", "other=()"),
        ("Signature", "x" * 5000), ("Signature-Input", "\u00e9"),
        ("Content-Digest", "sha-256=:AAAA:"),
    ],
)  # fmt: skip
def test_a_changed_added_or_removed_header_is_refused(name: str, value: str | None) -> None:
    with pytest.raises(InvalidSignature):
        checked(with_header(signed(), name, value))


def test_headers_that_proxies_add_do_no_harm() -> None:
    request = with_header(signed(), "X-Forwarded-For", "10.0.0.1")
    lower = request | {"headers": {n.lower(): v for n, v in request["headers"].items()}}
    assert checked(with_header(lower, "host", "proxy.example")).key_id == "agent-key"


def test_a_changed_body_is_a_digest_mismatch() -> None:
    with pytest.raises(DigestMismatch, match="body of 5 bytes"):
        checked(signed() | {"body": b"chunj"})


def test_an_unknown_key_is_refused() -> None:
    with pytest.raises(InvalidSignature, match="unknown key"):
        checked(signed(key_id="stranger"))
    with pytest.raises(InvalidSignature):
        checked(signed(OTHER))


def test_a_stored_key_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidSignature, match="not an Ed25519 key"):
        verify_request(**signed(), find_key=lambda _: b"short", now=NOW)


@pytest.mark.parametrize("skew_s", [-300.0, -3.0, 0.0, 3.0, 300.0])
def test_a_clock_within_the_tolerance_is_accepted(skew_s: float) -> None:
    assert checked(signed(now=NOW + skew_s)).created == NOW + skew_s


def test_a_clock_ten_minutes_ahead_is_told_so() -> None:
    with pytest.raises(ClockSkew, match="your clock is 600 s ahead, the limit is 300 s") as caught:
        checked(signed(now=NOW + 600))
    assert caught.value.skew_s == 600
    with pytest.raises(ClockSkew, match="your clock is 301 s behind"):
        checked(signed(now=NOW - 301))


def test_only_the_keys_holder_learns_about_the_skew() -> None:
    forged = signed(OTHER, now=NOW + 600)
    with pytest.raises(InvalidSignature) as caught:
        checked(forged)
    assert not isinstance(caught.value, ClockSkew)


@pytest.mark.parametrize("nonce", ["", "n" * 15, "n" * 129])
def test_a_nonce_of_the_wrong_length_is_refused(nonce: str) -> None:
    with pytest.raises(InvalidSignature, match="nonce: got"):
        checked(signed(nonce=nonce))


@pytest.mark.parametrize(
    "url", ["http://host/path", "@evil.example/path", "", "/a b", "/é", "/%zz"]
)
def test_a_url_that_is_no_encoded_path_cannot_be_signed(url: str) -> None:
    with pytest.raises(InvalidSignature):
        signed(url=url)


def rightly_signed(covered: str, params: str) -> dict[str, Any]:
    """A request without a body whose signature is right, whatever it covers."""
    digest = base64.b64encode(hashlib.sha256(b"").digest()).decode()
    values = {
        "@method": "GET",
        "@path": "/x",
        "@query": "?",
        "content-digest": f"sha-256=:{digest}:",
    }
    lines = [f'"{name}": {values[name]}' for name in covered.split()]
    listed = " ".join(f'"{name}"' for name in covered.split())
    signature_input = f'({listed});{params};tag="fedward-agent"'
    base = "\n".join([*lines, f'"@signature-params": {signature_input}'])
    raw = base64.b64encode(sign(AGENT, base.encode())).decode()
    headers = {
        "Content-Digest": values["content-digest"],
        "Signature-Input": f"fedward={signature_input}",
        "Signature": f"fedward=:{raw}:",
    }
    return {"method": "GET", "url": "/x", "headers": headers, "body": b""}


ALL = "@method @path @query content-digest"
PARAMS = 'created=1790000000;keyid="agent-key";nonce="nnnnnnnnnnnnnnnn"'


def test_a_signature_made_by_hand_after_rfc_9421_verifies() -> None:
    assert checked(rightly_signed(ALL, PARAMS)).key_id == "agent-key"
    assert checked(rightly_signed(ALL, PARAMS + ';alg="ed25519"')).key_id == "agent-key"


@pytest.mark.parametrize("left_out", ["@method", "@path", "@query", "content-digest"])
def test_a_signature_that_leaves_something_out_is_refused(left_out: str) -> None:
    covered = " ".join(name for name in ALL.split() if name != left_out)
    with pytest.raises(InvalidSignature, match=f'"{left_out}" was not covered'):
        checked(rightly_signed(covered, PARAMS))


@pytest.mark.parametrize(
    "params",
    [
        'keyid="agent-key";nonce="nnnnnnnnnnnnnnnn"',
        'created=1790000000.5;keyid="agent-key";nonce="nnnnnnnnnnnnnnnn"',
        'created=1790000000;nonce="nnnnnnnnnnnnnnnn"',
        'created=1790000000;keyid="agent-key"',
        PARAMS + ";expires=1790000060",
        PARAMS + ';alg="rsa-pss-sha512"',
        PARAMS + ";other=1",
    ],
)
def test_signature_parameters_other_than_ours_are_refused(params: str) -> None:
    with pytest.raises(InvalidSignature):
        checked(rightly_signed(ALL, params))


def test_another_tag_or_label_is_refused() -> None:
    request = signed()
    renamed = {n: v.replace("fedward=", "other=") for n, v in request["headers"].items()}
    with pytest.raises(InvalidSignature, match="expected one called 'fedward'"):
        checked(request | {"headers": renamed})
    retagged = request["headers"]["Signature-Input"].replace("fedward-agent", "fedward-x")
    with pytest.raises(InvalidSignature):
        checked(with_header(request, "Signature-Input", retagged))


def test_a_second_signature_of_another_service_is_ignored() -> None:
    request = signed()
    both = {
        "Signature-Input": request["headers"]["Signature-Input"] + ', gw=();created=1;tag="gw"',
        "Signature": request["headers"]["Signature"] + ", gw=:AAAA:",
    }
    assert checked(request | {"headers": request["headers"] | both}).key_id == "agent-key"


@given(
    st.binary(max_size=300), st.text("abc/%20", max_size=10).map(lambda s: "/" + s.replace("%", ""))
)
def test_any_body_and_path_verify_as_signed(body: bytes, path: str) -> None:
    assert checked(signed(body=body, url=path)).key_id == "agent-key"


@given(st.text(max_size=200), st.text(max_size=200))
def test_arbitrary_signature_headers_are_refused_and_nothing_else_happens(a: str, b: str) -> None:
    request = with_header(with_header(signed(), "Signature-Input", a), "Signature", b)
    with pytest.raises(InvalidSignature):
        checked(request)


# ---------------------------------------------------------------- responses


def asked(request: dict[str, Any]) -> tuple[str, str, dict[str, str]]:
    return request["method"], request["url"], request["headers"]


def answered(request: dict[str, Any], **changes: Any) -> dict[str, Any]:
    response = RESPONSE | changes
    added = sign_response(
        COORDINATOR, key_id="coordinator-key", request=asked(request), now=NOW, **response
    )
    return response | {"headers": response["headers"] | added}


def believed(response: dict[str, Any], request: dict[str, Any]) -> Any:
    return verify_response(**response, request=asked(request), find_key=KEYS.get)


def test_a_signed_response_verifies_for_the_request_that_it_answers() -> None:
    request = signed()
    got = believed(answered(request), request)
    assert (got.key_id, got.created) == ("coordinator-key", NOW)
    bare = answered(request, status=204, headers={}, body=b"")
    assert believed(bare, request).key_id == "coordinator-key"


def test_a_response_cannot_be_passed_off_as_the_answer_to_another_request() -> None:
    first, second = signed(), signed(nonce="m" * 22)
    with pytest.raises(InvalidSignature):
        believed(answered(first), second)


@pytest.mark.parametrize("change", [{"status": 201}, {"headers": {}}, {"body": b'{"ok":2}'}])
def test_a_changed_response_is_refused(change: dict[str, Any]) -> None:
    request = signed()
    with pytest.raises(InvalidSignature):
        believed(answered(request) | change, request)
    with pytest.raises(InvalidSignature):
        believed(with_header(answered(request), "Content-Type", "text/plain"), request)
    with pytest.raises(InvalidSignature):
        believed(with_header(answered(request), "Content-Range", "bytes 0-1/2"), request)


def test_a_changed_response_body_is_a_digest_mismatch() -> None:
    request = signed()
    with pytest.raises(DigestMismatch):
        believed(answered(request) | {"body": b""}, request)


def test_a_response_of_an_unpinned_key_is_refused() -> None:
    request = signed()
    with pytest.raises(InvalidSignature, match="unknown key"):
        verify_response(**answered(request), request=asked(request), find_key=lambda _: None)


def test_a_request_signature_does_not_serve_as_a_response_signature() -> None:
    request = signed()
    with pytest.raises(InvalidSignature):
        believed(RESPONSE | {"headers": request["headers"]}, request)


def test_an_agent_with_a_wrong_clock_believes_the_answer_that_says_so() -> None:
    request = signed(now=NOW + 86_400)
    assert believed(answered(request, status=401), request).created == NOW


def test_an_unsigned_request_cannot_be_answered_under_signature() -> None:
    unsigned = REQUEST | {"headers": {}}
    with pytest.raises(InvalidSignature, match="cannot be signed"):
        answered(unsigned)
    with pytest.raises(InvalidSignature):
        believed(answered(signed()), unsigned)


def test_what_was_verified_cannot_be_changed() -> None:
    got = checked(signed())
    assert replace(got, nonce="x").nonce == "x"
    with pytest.raises(AttributeError):
        got.nonce = "x"
