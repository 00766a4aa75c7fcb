"""The one sequence of bytes that stands for a document, and digests of bytes.

Documents that are signed, hashed or recorded are turned into RFC 8785 (JCS) bytes once; those
bytes are stored and hashed, never the parsed form. Digests are SHA-256, written
`sha256:<64 lower-case hex>`.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import rfc8785
from pydantic import BaseModel, JsonValue

from fedward.protocol.errors import InvalidDocument

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import Buffer

_PREFIX = "sha256:"
_HEX_LENGTH = 64
_ALL_DIGITS_BELOW = 10**21
"""Floats below are written without an exponent (ECMA-262, Number::toString)."""


def canonical_bytes(document: JsonValue | BaseModel) -> bytes:
    """Return the RFC 8785 bytes of a JSON value, or of a wire document's JSON form.

    Law: parsing the bytes with `json` and writing them again gives the same bytes.

    Raises:
        InvalidDocument: a number is not finite, an integer beyond ±(2**53 - 1) would change, a
            string holds a lone surrogate, a key is not a string, or the nesting is too deep.
    """
    value = document.model_dump(mode="json") if isinstance(document, BaseModel) else document
    try:
        return _written(value)
    except (ValueError, RecursionError) as error:
        raise InvalidDocument(f"no canonical form: {error}") from error


def document_digest(document: BaseModel) -> str:
    """Return the digest of the document's canonical bytes."""
    return sha256_digest(canonical_bytes(document))


def sha256_digest(data: Buffer) -> str:
    """Return `sha256:<hex>` of the bytes of `data`, which is not copied."""
    return _PREFIX + hashlib.sha256(data).hexdigest()


def sha256_digest_of(pieces: Iterable[Buffer]) -> str:
    """Return the digest of the concatenated pieces without concatenating them."""
    hasher = hashlib.sha256()
    for piece in pieces:
        hasher.update(piece)
    return _PREFIX + hasher.hexdigest()


def digest_hex(digest: str) -> str:
    """Return the 64 hex digits of a digest.

    Raises:
        InvalidDocument: it is not `sha256:` and 64 lower-case hex digits.
    """
    hexadecimal = digest.removeprefix(_PREFIX)
    valid = (
        digest.startswith(_PREFIX)
        and len(hexadecimal) == _HEX_LENGTH
        and not set(hexadecimal) - set("0123456789abcdef")
    )
    if not valid:
        raise InvalidDocument(f"digest: got {digest[:80]!r}, expected sha256:<64 hex digits>")
    return hexadecimal


def _written(value: JsonValue) -> bytes:
    try:
        return rfc8785.dumps(value)
    except rfc8785.IntegerDomainError:
        return rfc8785.dumps(_with_large_integers_as_floats(value))


def _with_large_integers_as_floats(value: JsonValue) -> JsonValue:
    """Return `value` with the integers that came from a float's own digits as that float.

    RFC 8785 writes the float 1e18 as digits, which `json` reads back as an integer that the
    library refuses. Without this, a record that holds such a float would look tampered with.
    """
    if isinstance(value, dict):
        return {key: _with_large_integers_as_floats(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_large_integers_as_floats(item) for item in value]
    if isinstance(value, int) and abs(value) < _ALL_DIGITS_BELOW:
        number = float(value)
        return number if rfc8785.dumps(number) == str(value).encode() else value
    return value
