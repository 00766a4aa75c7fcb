"""How long the agent waits before it tries again: doubling, bounded, jittered."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits that double with every failure up to `cap_s`, spread by half.

    `fraction` returns random numbers in [0, 1): a thousand agents that lost the coordinator at
    the same moment must not come back at the same moment.
    """

    fraction: Callable[[], float]
    base_s: float = 0.5
    cap_s: float = 30.0

    def delay_s(self, failures: int) -> float:
        """Return the wait after this many failures in a row (from 1), in (0, cap_s]."""
        full = min(self.cap_s, self.base_s * 2.0 ** min(failures - 1, 32))
        return full / 2 + self.fraction() * full / 2
