"""Ed25519 signatures over data, and over whole HTTP messages (RFC 9421, RFC 9530).

A request's signature covers method, path, query, the digest of the body and, where the message
has them, the header fields of `COVERED_FIELDS`: adding, removing or changing one breaks it. The
authority is not covered, because proxies rewrite it. A response's signature covers status,
body digest, its own such fields and the signature of the request that it answers: no response
can be passed off as the answer to another request.

What is left to others: whether a (key id, nonce) pair was seen before, and what the key's
owner may do. `url` is always path and query as they stand in the request line.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import http_message_signatures as hms
from cryptography.exceptions import InvalidSignature as RefusedByLibrary
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedward.protocol.errors import ClockSkew, DigestMismatch, InvalidSignature, UnknownKey

PrivateKey = Ed25519PrivateKey
REQUEST_TAG = "fedward-agent"
RESPONSE_TAG = "fedward-coordinator"
LABEL = "fedward"
COVERED_FIELDS = (
    "content-type",
    "content-range",
    "fedward-protocol",
    "idempotency-key",
    "upload-fence",
    "upload-offset",
)
"""Covered where present, beside content-digest, which always is."""

_REQUEST_ALWAYS = ("@method", "@path", "@query", "content-digest")
_RESPONSE_ALWAYS = ("@status", "content-digest", f'"signature";req;key="{LABEL}"')
_ORIGIN = "http://fedward"
"""The library wants an absolute URL; neither scheme nor authority is covered."""
_MAX_FIELD_CHARACTERS = 4096
_NONCE_CHARACTERS = range(16, 129)

Headers = Mapping[str, str]


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
        nonce: 16 to 128 characters that this key has never used.

    Raises:
        InvalidSignature: the message cannot be signed, e.g. an unencoded URL.
    """
    message = _Request(method.upper(), _absolute(url), _with_digest(headers, body))
    components = _REQUEST_ALWAYS + _present(message.headers)
    return _signed(
        key, message, components, key_id=key_id, now=now, nonce=nonce, tag=REQUEST_TAG
    )  # fmt: skip


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
    message = _Request(method.upper(), _absolute(url), dict(headers))
    required = _REQUEST_ALWAYS + _present(message.headers)
    verified = _verified(message, required, find_key=find_key, tag=REQUEST_TAG)
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
    try:
        hms.ContentDigest.verify(verified.content_digest, body)
    except hms.HTTPMessageSignaturesException as error:
        raise DigestMismatch(f"body of {len(body)} bytes: {error}") from error


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
    message = _Response(status, _with_digest(headers, body), _bound_request(request))
    components = _RESPONSE_ALWAYS + _present(message.headers)
    return _signed(
        key, message, components, key_id=key_id, now=now, nonce=None, tag=RESPONSE_TAG
    )  # fmt: skip


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
    message = _Response(status, dict(headers), _bound_request(request))
    required = _RESPONSE_ALWAYS + _present(message.headers)
    verified = _verified(message, required, find_key=find_key, tag=RESPONSE_TAG)
    require_body(verified, body)
    return verified


# ---------------------------------------------------------------- what the library needs


@dataclass(slots=True)
class _Request:
    method: str
    url: str
    headers: dict[str, str]


@dataclass(slots=True)
class _Response:
    status_code: int
    headers: dict[str, str]
    request: _Request


class _SigningKey(hms.HTTPSignatureKeyResolver):
    def __init__(self, key: PrivateKey) -> None:
        self._key = key

    def resolve_private_key(self, key_id: str) -> PrivateKey:  # noqa: ARG002  # their interface
        return self._key


class _KnownKeys(hms.HTTPSignatureKeyResolver):
    """Looks keys up and keeps why that failed, which the library takes for a wrong signature."""

    def __init__(self, find_key: Callable[[str], bytes | None]) -> None:
        self._find_key = find_key
        self.failure: Exception | None = None

    def resolve_public_key(self, key_id: str) -> Ed25519PublicKey:
        try:
            return _load_public(self._find_key(key_id))
        except Exception as error:
            self.failure = error
            raise


class _Verifier(hms.HTTPMessageVerifier):
    """The library's verifier, which would read the system's clock, without its own clock."""

    def validate_created_and_expires(
        self,
        sig_input: Any,
        max_age: timedelta | None = None,  # noqa: ARG002  # their interface
    ) -> None:
        """Refuse what carries no time of signing, or a time limit that we never set."""
        if type(sig_input.params.get("created")) is not int or "expires" in sig_input.params:
            raise hms.InvalidSignature("expected `created` and no `expires`")


def _signed(
    key: PrivateKey,
    message: _Request | _Response,
    components: tuple[str, ...],
    *,
    key_id: str,
    now: float,
    nonce: str | None,
    tag: str,
) -> dict[str, str]:
    signer = hms.HTTPMessageSigner(
        signature_algorithm=hms.algorithms.ED25519, key_resolver=_SigningKey(key)
    )
    try:
        signer.sign(
            message,
            key_id=key_id,
            created=datetime.fromtimestamp(now, UTC),
            nonce=nonce,
            label=LABEL,
            tag=tag,
            covered_component_ids=components,
            use_existing_digest=True,
        )
    except hms.HTTPMessageSignaturesException as error:
        raise InvalidSignature(f"the message cannot be signed: {error}") from error
    added = ("Content-Digest", "Signature-Input", "Signature")
    return {name: message.headers[name] for name in added}


def _verified(
    message: _Request | _Response,
    required: tuple[str, ...],
    *,
    find_key: Callable[[str], bytes | None],
    tag: str,
) -> Verified:
    _check_lengths(message.headers)
    keys = _KnownKeys(find_key)
    verifier = _Verifier(signature_algorithm=hms.algorithms.ED25519, key_resolver=keys)
    try:
        results = verifier.verify(
            message, max_age=None, expect_tag=tag, require_components=required
        )
    except hms.HTTPMessageSignaturesException as error:
        if keys.failure is not None:
            raise keys.failure from error
        raise InvalidSignature(f"the signature does not verify: {error}") from error
    if len(results) != 1 or results[0].label != LABEL:
        raise InvalidSignature(f"got {len(results)} signatures, expected one called {LABEL!r}")
    (result,) = results
    return Verified(
        str(result.parameters["keyid"]),
        result.nonce or "",
        float(result.parameters["created"]),
        str(result.covered_components['"content-digest"']),
    )


def _with_digest(headers: Headers, body: bytes) -> dict[str, str]:
    """Return the headers with the body's digest in place of any other."""
    ours = {"content-digest", "signature", "signature-input"}
    kept = {name: value for name, value in headers.items() if name.lower() not in ours}
    return kept | {"Content-Digest": hms.ContentDigest.create(body)}


def _present(headers: Headers) -> tuple[str, ...]:
    names = {name.lower() for name in headers}
    return tuple(field for field in COVERED_FIELDS if field in names)


def _bound_request(request: tuple[str, str, Headers]) -> _Request:
    method, url, headers = request
    _check_lengths(headers)
    return _Request(method.upper(), _absolute(url), dict(headers))


def _absolute(url: str) -> str:
    if not url.startswith("/"):
        raise InvalidSignature(f"url: got {url[:80]!r}, expected a path that begins with /")
    return _ORIGIN + url


def _check_lengths(headers: Headers) -> None:
    """Bound the work that a stranger can cause before the signature is checked."""
    for name, value in headers.items():
        signature = name.lower() in {"signature", "signature-input", "content-digest"}
        if signature and len(value) > _MAX_FIELD_CHARACTERS:
            raise InvalidSignature(
                f"{name}: got {len(value)} characters, expected {_MAX_FIELD_CHARACTERS} at most"
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
