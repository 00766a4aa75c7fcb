"""The agents' long poll: wait for a task without holding a thread.

A waiting agent costs a few small tasks on the event loop. It is woken by the notifier's topic
`site:<slug>`, by the end of its connection, by a newer poll of the same site, by shutdown, and
every few seconds, in case another process changed the database.

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


@dataclass(slots=True)
class _Seat:
    """A site's place at the desk; `turn` counts its polls, `newer` ends the present one."""

    turn: int = 0
    polls: int = 0
    newer: asyncio.Event = field(default_factory=asyncio.Event)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class PollDesk:
    """Where agents wait; one per process."""

    def __init__(self, notifier: Notifier, *, stopping: asyncio.Event, recheck_s: float) -> None:
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
        seat.turn += 1
        seat.polls += 1
        gone = asyncio.ensure_future(disconnected(receive))
        try:
            return await self._serve(site, seat, look, wait_s=wait_s, gone=gone)
        finally:
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)
            seat.polls -= 1
            if not seat.polls:
                self._seats.pop(site, None)

    async def _serve(
        self,
        site: str,
        seat: _Seat,
        look: Callable[[], _T | None],
        *,
        wait_s: float,
        gone: asyncio.Future[None],
    ) -> _T | None:
        loop = asyncio.get_running_loop()
        topic, turn, newer, until = f"site:{site}", seat.turn, seat.newer, loop.time() + wait_s
        while True:
            seen = self._notifier.version(topic)  # before looking: nothing is missed in between
            async with seat.lock:
                if seat.turn != turn or gone.done():
                    return None
                found = await run_in_threadpool(look)
            left_s = until - loop.time()
            if found is not None or left_s <= 0 or self._stopping.is_set():
                return found
            await first_of(
                self._notifier.wait(topic, min(self._recheck_s, left_s), since=seen),
                asyncio.shield(gone),
                newer.wait(),
                self._stopping.wait(),
            )
