"""Ed25519 signatures over data, and over whole HTTP messages (RFC 9421, RFC 9530).

A request's signature covers method, path, query, the digest of the body and, where the message
has them, the header fields of `COVERED_FIELDS`: adding, removing or changing one breaks it. The
authority is not covered, because proxies rewrite it. A response's signature covers status,
body digest, its own such fields and the signature of the request that it answers: no response
can be passed off as the answer to another request.

Our messages have one form, so nothing is parsed that could be read in two ways: the verifier
writes the list of covered components itself (`signature_base`) and wants the received one to be
the same bytes, and the parameters must match one regular expression. All else is refused
(docs/decisions/0006-signature-base.md). Members of other labels, which a gateway may add, are
left alone.

What is left to others: whether a (key id, nonce) pair was seen before, and what the key's
owner may do. `url` is always path and query as they stand in the request line.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature as RefusedByLibrary
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedward.protocol.errors import ClockSkew, DigestMismatch, InvalidSignature, UnknownKey
from fedward.protocol.signature_base import (
    COVERED_FIELDS,
    LABEL,
    SIGNED_FIELDS,
    Components,
    Headers,
    digest_of,
    explain_difference,
    list_names,
    own_member,
    own_signature,
    read_fields,
    request_components,
    response_components,
    write_base,
)

PrivateKey = Ed25519PrivateKey
REQUEST_TAG = "fedward-agent"
RESPONSE_TAG = "fedward-coordinator"
_NONCE_CHARACTERS = range(16, 129)

# No quote and no backslash: what stands between quotes is the text itself.
_TEXT = "[A-Za-z0-9+/=._-]"
_ALG = ';alg="ed25519"'
_CREATED = ";created=(?P<created>0|[1-9][0-9]{0,14})"
_SIGNER = rf'{_CREATED};keyid="(?P<keyid>{_TEXT}{{1,128}})"(?P<alg>{_ALG})?'
_REQUEST_PARAMETERS = re.compile(
    rf'{_SIGNER};nonce="(?P<nonce>{_TEXT}*)"(?(alg)|(?:{_ALG})?);tag="{REQUEST_TAG}"'
)
_RESPONSE_PARAMETERS = re.compile(rf'{_SIGNER}(?P<nonce>);tag="{RESPONSE_TAG}"')
"""As we write them; `alg` may be missing, and in a request stand after the nonce."""


@dataclass(frozen=True, slots=True)
class Verified:
    """Who signed a message, and when by the signer's clock (epoch seconds).

    `nonce` is empty in a response. `content_digest` is the signed one, for `require_body`.
    """

    key_id: str
    nonce: str
    created: float
    content_digest: str


# ---------------------------------------------------------------- keys and plain data


def key_id_of(public_key: bytes) -> str:
    """Return the id of an Ed25519 public key: the first 32 hex digits of its SHA-256."""
    return hashlib.sha256(public_key).hexdigest()[:32]


def new_private_key(seed: bytes) -> PrivateKey:
    """Return the private key of a 32-byte secret, which comes from a secure source."""
    return Ed25519PrivateKey.from_private_bytes(seed)


def private_seed(key: PrivateKey) -> bytes:
    """Return the 32 secret bytes to be stored."""
    return key.private_bytes_raw()


def public_bytes(key: PrivateKey) -> bytes:
    """Return the 32 bytes of the public key."""
    return key.public_key().public_bytes_raw()


def public_hex(key: PrivateKey) -> str:
    """Return the public key as 64 hex digits."""
    return public_bytes(key).hex()


def sign(key: PrivateKey, data: bytes) -> bytes:
    """Return the 64-byte signature of `data`."""
    return key.sign(data)


def verify(public: bytes, signature: bytes, data: bytes) -> None:
    """Check that `signature` over `data` was made with the key of `public` (32 bytes).

    Raises:
        InvalidSignature: it was not, or the key is none.
    """
    try:
        _load_public(public).verify(signature, data)
    except RefusedByLibrary as error:
        raise InvalidSignature("the signature does not verify") from error


# ---------------------------------------------------------------- requests


def sign_request(
    key: PrivateKey,
    *,
    key_id: str,
    method: str,
    url: str,
    headers: Headers,
    body: bytes,
    now: float,
    nonce: str,
) -> dict[str, str]:
    """Return the headers to add: Content-Digest, Signature-Input and Signature.

    Args:
        url: path and query, encoded as they are sent.
        headers: those that will be sent; changing a covered one later breaks the signature.
        body: as sent, after any content coding; empty where there is none.
        now: seconds since the epoch.
        nonce: 16 to 128 letters, digits or +/=._- that this key has never used.

    Raises:
        InvalidSignature: the message cannot be signed, e.g. an unencoded URL, a key id or nonce
            of other characters, a header with a line end.
    """
    fields = read_fields(headers, COVERED_FIELDS) | {"content-digest": digest_of(body)}
    components = request_components(method, url, fields)
    parameters = f'{_written_signer(key_id, now)};nonce="{nonce}";tag="{REQUEST_TAG}"'
    return _signed(key, components, parameters, form=_REQUEST_PARAMETERS)


def verify_request(
    *,
    method: str,
    url: str,
    headers: Headers,
    body: bytes | None,
    find_key: Callable[[str], bytes | None],
    now: float,
    tolerance_s: float = 300.0,
) -> Verified:
    """Check a request's signature, body and time, and say who signed it.

    `body` is None where it is still to come: `require_body` checks it then. `find_key` returns
    the 32 bytes of a key id's public key, or None; what it raises is raised. The clock is
    compared after the signature, so that only a holder of the key learns about the skew.

    Raises:
        InvalidSignature: missing, malformed, or wrong.
        UnknownKey: `find_key` returned None.
        DigestMismatch: the body is not the one that was signed.
        ClockSkew: `created` is more than `tolerance_s` seconds away from `now`.
    """
    fields = read_fields(headers, SIGNED_FIELDS)
    components = request_components(method, url, fields)
    verified = _verified(components, fields, find_key=find_key, form=_REQUEST_PARAMETERS)
    if body is not None:
        require_body(verified, body)
    if len(verified.nonce) not in _NONCE_CHARACTERS:
        raise InvalidSignature(f"nonce: got {len(verified.nonce)} characters, expected 16 to 128")
    if abs(verified.created - now) > tolerance_s:
        raise ClockSkew(verified.created - now, limit_s=tolerance_s)
    return verified


def require_body(verified: Verified, body: bytes) -> None:
    """Check that `body` is the one that was signed.

    Raises:
        DigestMismatch: it is not.
    """
    got = digest_of(body)
    if got != verified.content_digest:
        raise DigestMismatch(
            f"body of {len(body)} bytes: got {got}, {verified.content_digest} was signed"
        )


# ---------------------------------------------------------------- responses


def sign_response(
    key: PrivateKey,
    *,
    key_id: str,
    status: int,
    headers: Headers,
    body: bytes,
    request: tuple[str, str, Headers],
    now: float,
) -> dict[str, str]:
    """Return the headers to add to the answer to `request` (method, url, headers).

    Raises:
        InvalidSignature: the request has no signature of ours to bind the answer to.
    """
    fields = read_fields(headers, COVERED_FIELDS) | {"content-digest": digest_of(body)}
    components = response_components(status, fields, request)
    parameters = f'{_written_signer(key_id, now)};tag="{RESPONSE_TAG}"'
    return _signed(key, components, parameters, form=_RESPONSE_PARAMETERS)


def verify_response(
    *,
    status: int,
    headers: Headers,
    body: bytes,
    request: tuple[str, str, Headers],
    find_key: Callable[[str], bytes | None],
) -> Verified:
    """Check that a response answers just this request and was signed by a known key.

    Its age is not limited: the request's nonce makes it fresh, and an agent whose clock is
    wrong must still be able to believe the answer that says so.

    Args:
        request: method, url and all headers as they were sent, signature included.

    Raises:
        InvalidSignature: missing, malformed, of an unknown key, or wrong.
        DigestMismatch: the body is not the one that was signed.
    """
    fields = read_fields(headers, SIGNED_FIELDS)
    components = response_components(status, fields, request)
    verified = _verified(components, fields, find_key=find_key, form=_RESPONSE_PARAMETERS)
    require_body(verified, body)
    return verified


# ---------------------------------------------------------------- one form for both


def _written_signer(key_id: str, now: float) -> str:
    return f';created={int(now)};keyid="{key_id}"{_ALG}'


def _signed(
    key: PrivateKey, components: Components, parameters: str, *, form: re.Pattern[str]
) -> dict[str, str]:
    if form.fullmatch(parameters) is None:
        raise InvalidSignature(f"the message cannot be signed with {parameters[:300]!r}")
    signature = base64.b64encode(key.sign(write_base(components, parameters))).decode("ascii")
    return {
        "Content-Digest": dict(components)['"content-digest"'],
        "Signature-Input": f"{LABEL}={list_names(components)}{parameters}",
        "Signature": f"{LABEL}=:{signature}:",
    }


def _verified(
    components: Components,
    fields: Headers,
    *,
    find_key: Callable[[str], bytes | None],
    form: re.Pattern[str],
) -> Verified:
    given, listed = own_member(fields, "signature-input"), list_names(components)
    if not given.startswith(listed):
        raise InvalidSignature(explain_difference(components, given))
    parameters = given.removeprefix(listed)
    match = form.fullmatch(parameters)
    if match is None:
        raise InvalidSignature(f"signature-input: got the parameters {parameters[:300]!r}")
    signature = own_signature(fields)
    public = _load_public(find_key(match["keyid"]))
    try:
        public.verify(base64.b64decode(signature[1:-1]), write_base(components, parameters))
    except RefusedByLibrary as error:
        raise InvalidSignature("the signature does not verify") from error
    return Verified(
        match["keyid"], match["nonce"], float(match["created"]), fields["content-digest"]
    )


def _load_public(public: bytes | None) -> Ed25519PublicKey:
    if public is None:
        raise UnknownKey("unknown key")
    try:
        return Ed25519PublicKey.from_public_bytes(public)
    except ValueError as error:
        raise InvalidSignature(
            f"public key: got {len(public)} bytes, not an Ed25519 key"
        ) from error
