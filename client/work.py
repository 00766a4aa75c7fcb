"""The site's agent: asks for work, does it, delivers it, for ever.

One task at a time. Beside the work a heartbeat tells the coordinator that this site is alive;
when the coordinator no longer wants the task, the work is stopped. An answer is committed to
the journal before its first byte is sent and sent again until the coordinator has answered, so
that a crash at any moment neither loses nor repeats a finished training.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import TypeVar

from fedward.protocol.canonical import sha256_digest
from fedward.protocol.documents import (
    NextStep,
    ResultReceipt,
    Task,
    TaskFailure,
    TaskResult,
    UpdateRef,
)

from .audit_events import EgressIntended
from .backoff import Backoff
from .errors import AgentOutdated, CallRefused, ConnectionFailed, NotAdmitted
from .exchange import Exchange
from .journal import Finished, Journal, about
from .settings import AgentSettings
from .task_runner import TaskRunner, Workshop

_BEAT_AT_MOST_S = 30.0
_UPLOADS_AT_MOST = 5
"""How often the coordinator may say that bytes are missing before we ask for work again."""
_FORM_IS_FINE = frozenset({401, 404, 409, 429})
"""Refusals of a result, below 500, that are about the task or the moment and not its form."""
_MAY_COME_AGAIN = frozenset({"stale-fence"})
"""Refusals after which the same task may be leased again, with the same answer."""
_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class Agent:
    """Works for one coordinator until it is cancelled."""

    def __init__(
        self,
        settings: AgentSettings,
        *,
        exchange: Exchange,
        runner: TaskRunner,
        journal: Journal,
        workshop: Workshop,
        now: Callable[[], float],
        backoff: Backoff,
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._settings = settings
        self._exchange = exchange
        self._runner = runner
        self._journal = journal
        self._workshop = workshop
        self._now = now
        self._backoff = backoff
        self._sleep = sleep
        self._setbacks = 0

    async def work(self) -> None:
        """Work until cancelled.

        Raises:
            NotAdmitted: the coordinator revoked this site.
            AgentOutdated: the coordinator does not speak this agent's protocol.
            sqlite3.Error: the journal or audit log cannot be written; nothing is sent then.
        """
        while True:
            await self.work_once()

    async def work_once(self) -> None:
        """Ask for one task and, if there is one, do and deliver it."""
        task = await self._exchange.next_task(wait_s=self._settings.network.poll_s)
        if task is None:
            return
        _log.info("task %s: %s of %s, round %d", task.task, task.kind, task.run, task.round)
        finished = self._journal.receive(task, now=self._now())
        try:
            settled = await self._do(task, finished)
        except (NotAdmitted, AgentOutdated):
            raise
        except CallRefused as refused:
            _log.warning("task %s is not wanted any more: %s", task.task, refused)
            final = refused.name not in _MAY_COME_AGAIN
            self._journal.abandon(task, final=final, now=self._now())
            settled = False
        self._tidy(task)
        await self._pace(settled=settled)

    async def _pace(self, *, settled: bool) -> None:
        """Wait longer and longer while tasks come to nothing: they may be handed out at once."""
        self._setbacks = 0 if settled else self._setbacks + 1
        if self._setbacks > 1:
            await self._sleep(self._backoff.delay_s(self._setbacks))

    async def _do(self, task: Task, finished: Finished | None) -> bool:
        """Do and deliver; say whether the coordinator is done with the task."""
        if finished is not None and self._has_files(finished):
            _log.info("task %s is done already; delivering it", task.task)
        else:
            finished = await _beside(self._runner.run(task), self._beat(task))
            self._journal.finish(task, finished, now=self._now())
        return await _beside(self._deliver(task, finished), self._beat_in_delivery(task))

    async def _beat(self, task: Task) -> None:
        """Show life until cancelled; end only by raising CallRefused: the task is not wanted."""
        while True:
            await asyncio.sleep(min(task.lease_s / 4, _BEAT_AT_MOST_S))
            try:
                await self._exchange.progress(task)
            except ConnectionFailed as error:
                _log.warning("heartbeat of task %s: %s", task.task, error)

    async def _beat_in_delivery(self, task: Task) -> None:
        """Show life; a refusal ends the delivery unless the result is answered soon.

        A heartbeat that crosses the accepted result on the way is refused, too; that result's
        answer is then at most as far away as the network may be silent.
        """
        try:
            await self._beat(task)
        except (NotAdmitted, AgentOutdated):
            raise
        except CallRefused:
            await asyncio.sleep(self._settings.network.timeout_s)
            raise

    async def _deliver(self, task: Task, finished: Finished) -> bool:
        """Send the answer; where its form is refused, a failure takes its place."""
        try:
            return await self._send(task, finished.result)
        except CallRefused as refused:
            if not _is_about_form(refused) or finished.result.failure is not None:
                raise
            _log.error("task %s: the coordinator cannot read the result: %s", task.task, refused)
        failed = _failed_instead(finished.result, TaskFailure.REPLY_INVALID)
        self._journal.finish(task, Finished(failed), now=self._now())
        return await self._send(task, failed)

    async def _send(self, task: Task, result: TaskResult) -> bool:
        result = result.model_copy(update={"fence": task.fence})
        body = result.model_dump_json().encode()
        receipt = None
        for _ in range(_UPLOADS_AT_MOST):
            self._intend(task, result.update, body)
            if result.update is not None:
                file = self._workshop.kept.path(result.update.digest)
                await self._exchange.upload(task, file, size_bytes=result.update.size_bytes)
            receipt = await self._exchange.submit(task, body)
            if receipt.next is NextStep.POLL:
                break
        return receipt is not None and self._settle(task, result, receipt)

    def _intend(self, task: Task, update: UpdateRef | None, body: bytes) -> None:
        """Record what is about to leave the site; where that fails nothing leaves."""
        leaving = [EgressIntended(kind="result", digest=sha256_digest(body), size_bytes=len(body))]
        if update is not None:
            leaving.insert(0, EgressIntended(kind="update", **update.model_dump()))
        self._journal.record(*(about(task, details) for details in leaving), now=self._now())

    def _settle(self, task: Task, result: TaskResult, receipt: ResultReceipt) -> bool:
        final = receipt.next is NextStep.POLL and receipt.reason not in _MAY_COME_AGAIN
        self._journal.settle(task, receipt, final=final, now=self._now())
        _tell_end(task, result, receipt)
        return final

    def _has_files(self, finished: Finished) -> bool:
        update = finished.result.update
        return update is None or self._workshop.kept.has(update.digest)

    def _tidy(self, task: Task) -> None:
        self._workshop.kept.keep_only(self._journal.referenced())
        with contextlib.suppress(OSError):  # a full or read-only disk is noticed by the next task
            self._workshop.cache.shrink(
                self._settings.limits.cache_bytes, in_use={task.plan, task.model}
            )


def _tell_end(task: Task, result: TaskResult, receipt: ResultReceipt) -> None:
    """Write the one line by which the people at the site know what a task came to."""
    what = f"{task.kind} of round {task.round} of {task.run}"
    if not receipt.accepted:
        reasons = [text for text in (receipt.reason, receipt.detail) if text]
        _log.warning("%s: not taken by the coordinator: %s", what, ": ".join(reasons))
    elif result.failure is None:
        _log.info("%s: done in %.1f s", what, result.duration_s)
    else:
        told = "traceback" if result.failure is TaskFailure.APP_RAISED else "reason"
        _log.warning("%s: failed: %s, the %s is above", what, result.failure, told)


def _is_about_form(refused: CallRefused) -> bool:
    if isinstance(refused, NotAdmitted | AgentOutdated):
        return False
    return 400 <= refused.problem.status < 500 and refused.problem.status not in _FORM_IS_FINE


def _failed_instead(result: TaskResult, failure: TaskFailure) -> TaskResult:
    return TaskResult(
        fence=result.fence, model=result.model, failure=failure, duration_s=result.duration_s
    )


async def _beside(work: Coroutine[None, None, _T], beat: Coroutine[None, None, None]) -> _T:
    """Return what `work` returns; an error of `beat` ends it, and neither outlives the call."""
    working, beating = asyncio.create_task(work), asyncio.create_task(beat)
    try:
        await asyncio.wait({working, beating}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done() and beating.exception() is None:
            await asyncio.wait({working})
        if not working.done():
            beating.result()
    finally:
        for task in (working, beating):
            task.cancel()
        await asyncio.gather(working, beating, return_exceptions=True)
    return working.result()
