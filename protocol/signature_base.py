"""What a signature of ours covers, written as RFC 9421 section 2.5 wants it.

Decides which parts of a message are signed, how they are read from it, and the bytes under the
signature. Refuses what could be read in two ways: control characters and non-ASCII, two entries
whose names differ only in case, digests and signatures that are not canonical base64 of the only
right length. Which parameters a signature has, and whose key made it, is `signatures`' part.

Lines of one name come here joined by ", ". Values count without surrounding spaces and tabs.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Collection, Mapping

from fedward.protocol.errors import InvalidSignature

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

_SIGNING = frozenset({"content-digest", "signature-input", "signature"})
SIGNED_FIELDS = _SIGNING.union(COVERED_FIELDS)
"""All header fields that a verifier reads."""
_MAX_FIELD_CHARACTERS = 4096

# RFC 9110: a method is a token. RFC 3986: path and query of an encoded URL; `++` and `*+` never
# give back what they took, so a hostile URL costs linear time.
_METHOD = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_URL = re.compile(
    r"(?P<path>/(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]++|%[0-9A-Fa-f]{2})*+)"
    r"(?:\?(?P<query>(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]++|%[0-9A-Fa-f]{2})*+))?"
)
_FIELD_VALUE = re.compile(r"[\t -~]*")
"""RFC 9421 section 2.5: ASCII without control characters, so without line ends and folds."""

# The last digit before the padding has bits that decode to nothing: they must be 0, or two
# texts would be one signature.
_DIGEST = re.compile(r"sha-256=:[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=:")
_SIGNATURE = re.compile(r":[A-Za-z0-9+/]{85}[AQgw]==:")
_MEMBER_TEXT = r'([a-z*][a-z0-9_.*-]*)=((?:"[^"\\]*+"|[^",\\])*+)'
_MEMBER = re.compile(_MEMBER_TEXT)
_DICTIONARY = re.compile(rf"{_MEMBER_TEXT}(?:,[ \t]*{_MEMBER_TEXT})*+")
"""RFC 9651 section 3.2, split at commas outside quotes; a backslash could hide a quote."""

Headers = Mapping[str, str]
Components = list[tuple[str, str]]
"""Identifiers as RFC 9421 writes them, with their values, in the order of the signature."""


# ---------------------------------------------------------------- the signature base


def request_components(method: str, url: str, fields: Headers) -> Components:
    """Return what a request's signature covers; `fields` are those of `read_fields`."""
    _require_method(method)
    path, query = _split_url(url)
    target = [('"@method"', method.upper()), ('"@path"', path), ('"@query"', "?" + query)]
    return [*target, ('"content-digest"', _signed_digest(fields)), *_covered(fields)]


def response_components(
    status: int, fields: Headers, request: tuple[str, str, Headers]
) -> Components:
    """Return what the signature of the answer to `request` (method, url, headers) covers."""
    return [
        ('"@status"', str(status)),
        ('"content-digest"', _signed_digest(fields)),
        (f'"signature";req;key="{LABEL}"', _signature_of(request)),
        *_covered(fields),
    ]


def _covered(fields: Headers) -> Components:
    return [(f'"{field}"', fields[field]) for field in COVERED_FIELDS if field in fields]


def list_names(components: Components) -> str:
    """Return the covered components as Signature-Input lists them."""
    return "(" + " ".join([name for name, _ in components]) + ")"


def write_base(components: Components, parameters: str) -> bytes:
    """Return what is signed (RFC 9421 section 2.5); no value holds a line end."""
    lines = [f"{name}: {value}" for name, value in components]
    lines.append(f'"@signature-params": {list_names(components)}{parameters}')
    return "\n".join(lines).encode("ascii")


def explain_difference(components: Components, given: str) -> str:
    """Say why the covered components in `given` are not the expected ones."""
    for name, _ in components:
        if name not in given:
            return f"signature-input: {name} was not covered by the signature"
    return f"signature-input: got {given[:300]!r}, expected {list_names(components)}"


# ---------------------------------------------------------------- parts of a message


def read_fields(headers: Headers, wanted: Collection[str]) -> dict[str, str]:
    """Return the wanted fields by their names in lower case.

    The limit of length bounds the work that a stranger can cause.
    """
    found: dict[str, str] = {}
    for name, value in headers.items():
        field = name.lower()
        if field not in wanted:
            continue
        if field in found:
            raise InvalidSignature(f"{field}: got two, expected one")
        if field in _SIGNING and len(value) > _MAX_FIELD_CHARACTERS:
            raise InvalidSignature(
                f"{field}: got {len(value)} characters, expected {_MAX_FIELD_CHARACTERS} at most"
            )
        found[field] = value.strip(" \t")
        if _FIELD_VALUE.fullmatch(found[field]) is None:
            raise InvalidSignature(f"{field}: got {value[:80]!r}, expected printable ASCII")
    return found


def own_member(fields: Headers, field: str) -> str:
    """Return the value of our label in a dictionary field.

    Raises:
        InvalidSignature: the field is missing or malformed, or has our label not just once.
    """
    text = fields.get(field, "")
    if _DICTIONARY.fullmatch(text) is None:
        raise InvalidSignature(f"{field}: got {text[:100]!r}, expected {LABEL}=...")
    members = _MEMBER.findall(text)
    ours: list[str] = [value.rstrip(" \t") for label, value in members if label == LABEL]
    if len(ours) != 1:
        raise InvalidSignature(
            f"{field}: got {len(ours)} of {len(members)} members, expected one called {LABEL!r}"
        )
    return ours[0]


def own_signature(fields: Headers) -> str:
    """Return our signature, 64 bytes as `:base64:`."""
    signature = own_member(fields, "signature")
    if _SIGNATURE.fullmatch(signature) is None:
        raise InvalidSignature(f"signature: got {signature[:100]!r}, expected 64 bytes in base64")
    return signature


def _signature_of(request: tuple[str, str, Headers]) -> str:
    """Return the signature that binds an answer to `request`."""
    method, url, headers = request
    try:
        _require_method(method)
        _split_url(url)
        return own_signature(read_fields(headers, {"signature"}))
    except InvalidSignature as error:
        raise InvalidSignature(f"the answer cannot be signed or verified: {error}") from error


def _require_method(method: str) -> None:
    if _METHOD.fullmatch(method) is None:
        raise InvalidSignature(f"method: got {method[:80]!r}")


def _split_url(url: str) -> tuple[str, str]:
    match = _URL.fullmatch(url)
    if match is None:
        raise InvalidSignature(
            f"url: got {url[:80]!r}, expected an encoded path that begins with /"
        )
    return match["path"], match["query"] or ""


def digest_of(body: bytes) -> str:
    """Return the Content-Digest of `body` (RFC 9530)."""
    digest = base64.b64encode(hashlib.sha256(body).digest()).decode("ascii")
    return f"sha-256=:{digest}:"


def _signed_digest(fields: Headers) -> str:
    digest = fields.get("content-digest", "")
    if _DIGEST.fullmatch(digest) is None:
        raise InvalidSignature(f"content-digest: got {digest[:100]!r}, expected a SHA-256")
    return digest
