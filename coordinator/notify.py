"""Wakes those who wait in this process, by topic; what they wait for is in the database.

Topics: `site:<slug>` there may be a task; `run:<id>` something changed; `jobs` the scheduler has
something to do. A wake-up may be in vain, none is lost: a waiter takes the
topic's version before it looks at the database and waits for a later one.
"""

import asyncio
import threading


class Notifier:
    """Versions of topics and who waits for the next one. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._versions: dict[str, int] = {}
        self._waiters: dict[str, set[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = {}

    def version(self, topic: str) -> int:
        """Return how often the topic was notified so far."""
        with self._lock:
            return self._versions.get(topic, 0)

    def notify(self, topic: str) -> None:
        """Wake all who wait for the topic; callable from any thread."""
        with self._lock:
            self._versions[topic] = self._versions.get(topic, 0) + 1
            waiters = list(self._waiters.get(topic, ()))
        for loop, event in waiters:
            try:
                loop.call_soon_threadsafe(event.set)
            except RuntimeError:  # that loop has been closed: nobody waits there any more
                continue

    async def wait(self, topic: str, timeout_s: float, *, since: int | None = None) -> bool:
        """Wait for a notification, at most `timeout_s`; returns whether there was one.

        With `since` (a `version` taken earlier) notifications after it count, too.
        """
        event = asyncio.Event()
        waiter = (asyncio.get_running_loop(), event)
        with self._lock:
            if since is not None and self._versions.get(topic, 0) != since:
                return True
            self._waiters.setdefault(topic, set()).add(waiter)
        try:
            async with asyncio.timeout(timeout_s):
                await event.wait()
        except TimeoutError:
            return False
        finally:
            with self._lock:
                waiting = self._waiters.get(topic, set())
                waiting.discard(waiter)
                if not waiting:
                    self._waiters.pop(topic, None)
        return True
