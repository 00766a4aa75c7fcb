"""The coordinator's only source of time; the core takes `now` as an argument."""

import time


def system_clock() -> float:
    """Return the seconds since the epoch, UTC."""
    return time.time()  # noqa: TID251 (this is the shell's clock)
