"""Counts denials that repeat, so that a flood of them fills neither disk nor audit log.

The first denial of a kind is recorded at once; like ones within the next minute are counted,
and their number is recorded once that minute is over (`drain`).
"""

import threading
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

WINDOW_S = 60.0
MAX_KINDS = 10_000
"""Kinds that are told apart within a minute; more than that are neither counted nor recorded."""

K = TypeVar("K", bound=Hashable)


@dataclass(slots=True)
class _Window:
    since: float
    repeats: int


class Floods(Generic[K]):
    """Which kinds were recorded lately. Thread-safe; counts are lost with the process."""

    def __init__(self) -> None:
        self._windows: dict[K, _Window] = {}
        self._lock = threading.Lock()

    def is_first(self, kind: K, *, now: float) -> bool:
        """Return whether `kind` is to be recorded now; if not, it is counted."""
        with self._lock:
            window = self._windows.get(kind)
            if window is not None:
                window.repeats += 1
                return False
            if len(self._windows) >= MAX_KINDS:
                return False
            self._windows[kind] = _Window(now, 0)
            return True

    def drain(self, *, before: float) -> list[tuple[K, int]]:
        """End the minutes that began before `before`; returns the kinds that were repeated."""
        with self._lock:
            over = [kind for kind, window in self._windows.items() if window.since < before]
            ended = [(kind, self._windows.pop(kind).repeats) for kind in over]
        return [(kind, repeats) for kind, repeats in ended if repeats]
