"""Ids of what the coordinator makes; they sort by the time of making."""

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
"""Crockford's base 32, lower case: no letter looks like a digit."""


def new_id(prefix: str, *, now: float, entropy: bytes) -> str:
    """Return `<prefix>-` and 26 characters: 48 bits of milliseconds, then 80 random bits."""
    number = int.from_bytes(
        int(now * 1000).to_bytes(6, "big") + entropy[:10].ljust(10, b"\0"), "big"
    )
    return f"{prefix}-" + "".join(_ALPHABET[number >> shift & 31] for shift in range(125, -1, -5))
