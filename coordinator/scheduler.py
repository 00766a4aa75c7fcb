"""Performs what is due: timers of runs, aggregations, housekeeping.

Jobs are rows, written in the transaction that makes them necessary, leased before they are
worked on and taken away in the transaction that does them: whatever is killed is done again.
`run_due` does all of it in the calling thread (tests drive it with a settable clock);
`Scheduler.run` does it in worker threads for as long as the process lives.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from fedward.coordinator import aggregation, lifecycle, run_steps
from fedward.coordinator.actors import SYSTEM
from fedward.coordinator.context import Context
from fedward.coordinator.errors import CoordinatorError
from fedward.coordinator.run_state import Tick
from fedward.coordinator.service import Coordinator
from fedward.coordinator.store import run_queries
from fedward.coordinator.store.records import JobRecord

LEASE_S = 3600.0
"""A job that takes longer is taken for lost; doing it twice changes nothing."""
HOUSEKEEPING_S = 60.0
STORAGE_FAULTS = (CoordinatorError, OSError, MemoryError)
"""What passes by itself, or when somebody makes room: the work is done again later."""
_BATCH = 100
_RETRY_S = 1.0
_RETRY_MAX_S = 60.0
_log = logging.getLogger(__name__)
_T = TypeVar("_T")


def run_due(context: Context) -> None:
    """Perform all that is due now, and what becomes due by it."""
    lifecycle.keep_house(context)
    while jobs := claim(context):
        for job in jobs:
            perform(context, job)


def claim(context: Context) -> list[JobRecord]:
    """Lease what is due."""
    now = context.clock()
    with context.store.reading() as connection:
        due = run_queries.next_due(connection, now=now)
    if due is None or due > now:
        return []
    with context.store.transaction() as work:
        return run_queries.claim_due(work.connection, now=now, until=now + LEASE_S, limit=_BATCH)


def next_due(context: Context) -> float | None:
    """Return when the next job that nobody works on is due, in seconds since the epoch."""
    with context.store.reading() as connection:
        return run_queries.next_due(connection, now=context.clock())


def perform(context: Context, job: JobRecord) -> None:
    """Perform a job. One that fails, for want of disk say, stays as it is and may be repeated."""
    if job.kind == run_steps.AGGREGATE:
        _aggregate(context, job.run)
    else:
        _tick(context, job.run)


def tick_open_runs(context: Context) -> None:
    """Let every run look at the time: a clock that was set back leaves timers in the future."""
    with context.store.reading() as connection:
        found = run_queries.open_runs(connection)
    for record in found:
        _tick(context, record.run)


def _tick(context: Context, run: str) -> None:
    with context.store.transaction() as work:
        run_queries.finish_job(work.connection, run, run_steps.TICK)
        record = run_steps.get(work.connection, run)
        run_steps.take(context, work, record=record, event=Tick(), actor=SYSTEM)


def _aggregate(context: Context, run: str) -> None:
    try:
        aggregation.aggregate(context, run)
    except STORAGE_FAULTS:
        raise
    except Exception:  # noqa: BLE001  outermost: one run's answers must not end all runs
        _log.exception("the answers of %s could not be combined", run)
        aggregation.give_up(context, run)


class Scheduler:
    """The process's one scheduler. `run` ends after `stop`; an unforeseen error ends it, too."""

    def __init__(self, coordinator: Coordinator, *, aggregations: int = 1) -> None:
        self._coordinator = coordinator
        self._context = coordinator.context
        self._aggregations = asyncio.Semaphore(aggregations)  # each holds an accumulator
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Ask `run` to end once the jobs at work are done; call it in the event loop."""
        self._stopping.set()
        self._context.notifier.notify("jobs")

    async def run(self) -> None:
        """Recover, then perform jobs until `stop`."""
        if await self._insist(self._recover) is None:
            return  # stopped before storage could be written
        await self._insist(tick_open_runs)
        housekeeping_at = last = self._context.clock()
        async with asyncio.TaskGroup() as group:
            while not self._stopping.is_set():
                seen = self._context.notifier.version("jobs")
                now = self._context.clock()
                if now < last:
                    await self._insist(tick_open_runs)
                    housekeeping_at = now
                last = now
                if now >= housekeeping_at:
                    await self._insist(lifecycle.keep_house)
                    housekeeping_at = self._context.clock() + HOUSEKEEPING_S
                for job in await self._insist(claim) or ():
                    group.create_task(self._perform(job))
                due = await self._insist(next_due)
                until = housekeeping_at if due is None else min(due, housekeeping_at)
                pause_s = max(0.0, until - self._context.clock())
                await self._context.notifier.wait("jobs", pause_s, since=seen)
        try:
            await asyncio.to_thread(self._coordinator.stop)
        except STORAGE_FAULTS:
            _log.exception("the stop could not be recorded; the next start will say so")

    def _recover(self, _: Context) -> bool:
        self._coordinator.start()
        return True

    async def _perform(self, job: JobRecord) -> None:
        def work(context: Context) -> None:
            perform(context, job)

        if job.kind == run_steps.AGGREGATE:
            async with self._aggregations:
                await self._insist(work)
        else:
            await self._insist(work)

    async def _insist(self, work: Callable[[Context], _T]) -> _T | None:
        """Do the work in a thread; while storage fails, again and again until `stop`."""
        delay_s = _RETRY_S
        while True:
            try:
                return await asyncio.to_thread(work, self._context)
            except STORAGE_FAULTS:
                _log.exception("the scheduler tries again in %.0f s", delay_s)
            try:
                async with asyncio.timeout(delay_s):
                    await self._stopping.wait()
            except TimeoutError:
                delay_s = min(2 * delay_s, _RETRY_MAX_S)
            else:
                return None
