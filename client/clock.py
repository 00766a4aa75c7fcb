"""Time and randomness of the agent: the only module of `client` that reads either.

Everything else takes `now`, `token_bytes` or a delay as an argument.
"""

import secrets
import time


def now() -> float:
    """Return the time in seconds since the epoch."""
    return time.time()  # noqa: TID251  the one place of `client` that reads the clock


def monotonic() -> float:
    """Return seconds that never go back, for durations."""
    return time.monotonic()


def token_bytes(count: int) -> bytes:
    """Return `count` bytes from the operating system's secure generator."""
    return secrets.token_bytes(count)


def fraction() -> float:
    """Return a random number in [0, 1), for jitter."""
    return secrets.SystemRandom().random()
