"""Errors of the wire formats.

ProtocolError
├── InvalidDocument      a wire document does not match its schema
├── InvalidArrays        an arrays file is malformed or its values are not allowed
│   ├── SchemaMismatch   names, dtypes or shapes differ from what was expected
│   └── NonFinite        a NaN or an infinity
├── InvalidProof         a Merkle proof does not verify
└── InvalidSignature     a message signature does not verify
    ├── UnknownKey       nobody is known who has the signer's key id
    ├── ClockSkew        `created` is too far from the verifier's clock
    └── DigestMismatch   the body is not the one that was signed

All are raised for what a peer sent. A caller's own mistake is a ValueError or TypeError.
`reason` is the stable name that records, answers and problems show.
"""

from typing import ClassVar


class ProtocolError(Exception):
    """What a peer sent breaks the protocol."""

    reason: ClassVar[str] = "protocol-error"


class InvalidDocument(ProtocolError):
    """A wire document does not match its schema."""

    reason = "invalid-document"


class InvalidArrays(ProtocolError):
    """An arrays file is malformed, or holds what is not allowed."""

    reason = "invalid-arrays"


class SchemaMismatch(InvalidArrays):
    """The names, dtypes or shapes differ from the expected ones."""

    reason = "schema-mismatch"


class NonFinite(InvalidArrays):
    """An array holds a NaN or an infinity."""

    reason = "non-finite"


class InvalidProof(ProtocolError):
    """A Merkle inclusion or consistency proof does not verify."""

    reason = "invalid-proof"


class InvalidSignature(ProtocolError):
    """A message signature is missing, malformed or wrong."""

    reason = "invalid-signature"


class UnknownKey(InvalidSignature):
    """Nobody is known who has the signer's key id."""

    reason = "unknown-key"


class ClockSkew(InvalidSignature):
    """The signer's clock is too far from the verifier's.

    `skew_s` is positive when the signer's clock is ahead.
    """

    reason = "clock-skew"

    def __init__(self, skew_s: float, *, limit_s: float) -> None:
        where = "ahead" if skew_s > 0 else "behind"
        super().__init__(f"your clock is {abs(skew_s):.0f} s {where}, the limit is {limit_s:.0f} s")
        self.skew_s = skew_s
        self.limit_s = limit_s


class DigestMismatch(InvalidSignature):
    """The body does not have the digest that was signed or announced."""

    reason = "digest-mismatch"
