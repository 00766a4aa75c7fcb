"""The agents' long poll: wait for a task without holding a thread.

A waiting agent costs a few small tasks on the event loop. It is woken by the notifier's topic
`site:<slug>`, by the end of its connection, by a newer poll of the same site, by shutdown, and
every few seconds, in case another process changed the database; then one query for all of them
tells whether it did.

A site has one poll at a time: a task that was leased to a connection that is already dead would
carry a newer fence than the one that the living agent holds. So a newer poll ends the older one,
and looking for a task is serialised per site.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.types import Receive

from fedward.coordinator.notify import Notifier

_T = TypeVar("_T")


async def first_of(*waits: Awaitable[object]) -> None:
    """Return when one of them is done; the others are cancelled."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def disconnected(receive: Receive) -> None:
    """Return when the peer has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


class Changes:
    """A number that grows with every change of the database, asked for by many, looked up by one.

    Args:
        look: returns the number; runs in a thread.
        fresh_s: for so long an answer is good enough.
    """

    def __init__(self, look: Callable[[], int], *, fresh_s: float) -> None:
        self._look = look
        self._fresh_s = fresh_s
        self._lock = asyncio.Lock()
        self._looked_at = float("-inf")
        self._number = 0

    async def number(self) -> int:
        """Return the number as it was at most `fresh_s` ago."""
        async with self._lock:
            now = asyncio.get_running_loop().time()
            if now >= self._looked_at + self._fresh_s:
                self._number = await run_in_threadpool(self._look)
                self._looked_at = now
            return self._number


@dataclass(slots=True)
class _Seat:
    """A site's place at the desk; `newer` is set to end the present poll."""

    polls: int = 0
    newer: asyncio.Event = field(default_factory=asyncio.Event)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(frozen=True, slots=True)
class _Poll:
    """One request that waits; `until` by the loop's clock."""

    topic: str
    until: float
    newer: asyncio.Event
    gone: asyncio.Future[None]

    def left_s(self) -> float:
        return max(0.0, self.until - asyncio.get_running_loop().time())

    def ended(self) -> bool:
        return self.newer.is_set() or self.gone.done()


class PollDesk:
    """Where agents wait; one per process."""

    def __init__(
        self, notifier: Notifier, *, changes: Changes, stopping: asyncio.Event, recheck_s: float
    ) -> None:
        self._changes = changes
        self._notifier = notifier
        self._stopping = stopping
        self._recheck_s = recheck_s
        self._seats: dict[str, _Seat] = {}

    @property
    def open_polls(self) -> int:
        """How many agents wait."""
        return sum(seat.polls for seat in self._seats.values())

    async def wait_for(
        self, site: str, look: Callable[[], _T | None], *, wait_s: float, receive: Receive
    ) -> _T | None:
        """Return what `look` finds for the site, or None after `wait_s`.

        Args:
            look: runs in a thread; called at once and after every wake-up.
            receive: the connection, whose body has been read.
        """
        seat = self._seats.setdefault(site, _Seat())
        seat.newer.set()
        seat.newer = asyncio.Event()
        seat.polls += 1
        gone = asyncio.ensure_future(disconnected(receive))
        until = asyncio.get_running_loop().time() + wait_s
        try:
            return await self._serve(
                _Poll(f"site:{site}", until, seat.newer, gone), seat.lock, look
            )
        finally:
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)
            seat.polls -= 1
            if not seat.polls:
                self._seats.pop(site, None)

    async def _serve(
        self, poll: _Poll, lock: asyncio.Lock, look: Callable[[], _T | None]
    ) -> _T | None:
        while True:
            # Both before looking, so that what changes in between is not missed.
            seen, number = self._notifier.version(poll.topic), await self._changes.number()
            async with lock:
                if poll.ended():
                    return None
                found = await run_in_threadpool(look)
            if found is not None or poll.left_s() <= 0 or self._stopping.is_set():
                return found
            await self._until_changed(poll, seen=seen, number=number)

    async def _until_changed(self, poll: _Poll, *, seen: int, number: int) -> None:
        """Return when there may be a task, or nobody waits for one any more."""
        while poll.left_s() > 0 and not poll.ended() and not self._stopping.is_set():
            await first_of(
                self._notifier.wait(poll.topic, min(self._recheck_s, poll.left_s()), since=seen),
                asyncio.shield(poll.gone),
                poll.newer.wait(),
                self._stopping.wait(),
            )
            if self._notifier.version(poll.topic) != seen:
                return
            if await self._changes.number() != number:
                return
