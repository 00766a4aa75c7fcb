"""Counts denials that repeat, so that a flood of them fills neither disk nor audit log."""

import threading
from dataclasses import dataclass

WINDOW_S = 60.0
"""One record at most per kind of denial in this time; those in between are counted."""
MAX_KINDS = 10_000


@dataclass(slots=True)
class _Window:
    since: float
    repeats: int


class Floods:
    """Which denials were recorded lately. Thread-safe; counts are lost with the process."""

    def __init__(self) -> None:
        self._windows: dict[tuple[str, ...], _Window] = {}
        self._lock = threading.Lock()

    def count(self, *kind: str, now: float) -> int | None:
        """Return None while `kind` was recorded lately, else the repeats since its last record."""
        with self._lock:
            window = self._windows.get(kind)
            if window is not None and now < window.since + WINDOW_S:
                window.repeats += 1
                return None
            if window is None and len(self._windows) >= MAX_KINDS:
                self._windows = {k: w for k, w in self._windows.items() if now < w.since + WINDOW_S}
                if len(self._windows) >= MAX_KINDS:
                    return None  # a flood of different kinds: counted by none, recorded by none
            self._windows[kind] = _Window(now, 0)
            return 0 if window is None else window.repeats
