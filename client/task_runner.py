"""Does one task at the site: fetch, decide, run the app, check its answer, store it.

Order matters: the plan is checked against its digest and accepted by the site's rules before
the app is unpacked or any data is named to it. What comes out (`Finished`) is committed by the
journal; nothing is sent here.
"""

import asyncio
import hashlib
import logging
import math
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fedward.protocol.canonical import document_digest
from fedward.protocol.documents import (
    MAX_DOCUMENT_BYTES,
    Plan,
    Task,
    TaskFailure,
    TaskKind,
    TaskResult,
)
from fedward.protocol.errors import InvalidDocument

from . import audit_events
from .bundles import clientapp_of, unpack_bundle
from .cache import BlobFolder
from .errors import CallRefused, CorruptDownload, TaskFailed, WorkerDied
from .exchange import Exchange
from .journal import Finished, Journal, RunFiles, about
from .policy import Accepted, accept_plan
from .settings import AgentSettings
from .update import form_update, prepare_model
from .worker_process import WorkerProcess

MAX_PLAN_BYTES = 16 * 1024 * 1024
_LATER_BYTES = 64
"""Room in a result for what is written into it last: the fence and the duration."""
_DIES_AT_MOST = 2
"""A worker that died is replaced and the task run again, once."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Workshop:
    """The agent's folders: what can be fetched again, what cannot, unpacked apps, scratch."""

    cache: BlobFolder
    kept: BlobFolder
    apps: Path
    scratch: Path


@dataclass(frozen=True, slots=True)
class _Reply:
    """The worker's answer and the files that it wrote."""

    answer: dict[str, Any]
    arrays: Path
    state: Path


class TaskRunner:
    """Runs tasks one at a time. `now` and `monotonic` return seconds."""

    def __init__(
        self,
        settings: AgentSettings,
        *,
        exchange: Exchange,
        workshop: Workshop,
        journal: Journal,
        worker: WorkerProcess,
        now: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._exchange = exchange
        self._workshop = workshop
        self._journal = journal
        self._worker = worker
        self._now = now
        self._monotonic = monotonic
        self._plan: tuple[str, Plan] | None = None  # a run's tasks come one after another

    async def run(self, task: Task) -> Finished:
        """Do the task; a failure is a result, too.

        Raises:
            CallRefused: the coordinator no longer lets this site have what the task names.
        """
        started = self._monotonic()
        scratch = Path(tempfile.mkdtemp(dir=self._workshop.scratch))
        try:
            finished = await self._run(task, scratch)
        except TaskFailed as failed:
            _log.warning("task %s: %s", task.task, failed)
            finished = Finished(_result(task, failure=failed.failure))
        except (OSError, MemoryError):
            _log.exception("task %s: out of disk or memory", task.task)
            finished = Finished(_result(task, failure=TaskFailure.RESOURCES))
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        duration_s = max(0.0, self._monotonic() - started)
        result = finished.result.model_copy(update={"duration_s": duration_s})
        return Finished(result, finished.files)

    async def _run(self, task: Task, scratch: Path) -> Finished:
        plan = await self._fetch_plan(task)
        accepted = self._accept(plan, task)
        if accepted.data_path is not None and not accepted.data_path.exists():
            detail = f"dataset {accepted.dataset}: {accepted.data_path} does not exist"
            raise TaskFailed(TaskFailure.DATASET_UNREADABLE, detail)
        load = await self._load_frame(accepted)
        model = await self._fetch(task.model, TaskFailure.MODEL_INVALID)
        files = self._journal.run_files(task.run)
        context, local = self._kept(files.context), self._kept(files.local)
        arrays = await asyncio.to_thread(
            prepare_model, model, local, rules=plan.arrays, target=scratch / "model.safetensors"
        )
        trained, state = scratch / "reply.safetensors", scratch / "state"
        frame = self._run_frame(task, plan, accepted) | {
            "arrays_path": str(arrays),
            "state_path_in": None if context is None else str(context),
            "state_path_out": str(state),
            "reply_path": str(trained),
        }
        reply = _Reply(await self._ask_worker(load, frame), trained, state)
        return await asyncio.to_thread(
            self._check, task, plan, model=model, files=files, reply=reply
        )

    def _accept(self, plan: Plan, task: Task) -> Accepted:
        try:
            accepted = accept_plan(plan, task, settings=self._settings)
        except TaskFailed as refused:
            refusal = audit_events.PlanRefused(plan=task.plan, failure=refused.failure)
            event = about(task, refusal, outcome="denied", reason=refused.failure.value)
            self._journal.record(event, now=self._now())
            raise
        details = audit_events.PlanAccepted(
            plan=task.plan,
            recipe=accepted.recipe,
            bundle=accepted.bundle,
            dataset=accepted.dataset,
        )
        self._journal.record(about(task, details), now=self._now())
        return accepted

    async def _fetch_plan(self, task: Task) -> Plan:
        if self._plan is not None and self._plan[0] == task.plan:
            return self._plan[1]
        path = await self._fetch(task.plan, TaskFailure.PLAN_INVALID, limit=MAX_PLAN_BYTES)
        try:
            plan = Plan.model_validate_json(path.read_bytes())
            digest = document_digest(plan)
        except (ValidationError, InvalidDocument) as error:
            raise TaskFailed(TaskFailure.PLAN_INVALID, f"plan {task.plan}: {error}") from error
        if digest != task.plan:
            detail = f"plan {task.plan}: got bytes that are not canonical"
            raise TaskFailed(TaskFailure.PLAN_INVALID, detail)
        self._plan = (digest, plan)
        return plan

    async def _load_frame(self, accepted: Accepted) -> dict[str, Any]:
        device = self._settings.device
        if accepted.bundle is None:
            return {"op": "load", "app": accepted.recipe, "clientapp": None, "device": device}
        archive = await self._fetch(accepted.bundle, TaskFailure.APP_INVALID)
        app = await asyncio.to_thread(
            unpack_bundle, archive, digest=accepted.bundle, folder=self._workshop.apps
        )
        clientapp = clientapp_of(app)
        return {"op": "load", "app": str(app), "clientapp": clientapp, "device": device}

    async def _fetch(self, digest: str, failure: TaskFailure, *, limit: int | None = None) -> Path:
        limit_bytes = self._settings.limits.download_bytes if limit is None else limit
        try:
            return await self._exchange.fetch(digest, self._workshop.cache, limit_bytes=limit_bytes)
        except CorruptDownload as error:
            raise TaskFailed(failure, str(error)) from error
        except CallRefused as refused:
            if refused.problem.status != 404:
                raise
            raise TaskFailed(failure, str(refused)) from refused

    def _run_frame(self, task: Task, plan: Plan, accepted: Accepted) -> dict[str, Any]:
        return {
            "op": "run",
            "kind": task.kind.value,
            "action": plan.prepare if task.kind is TaskKind.QUERY else None,
            "config": task.config,
            "run_config": plan.app.config,
            "node_config": accepted.node_config,
            "run_id": stable_number(task.run),
            "node_id": stable_number(self._settings.site),
            "seed": task.seed,
            "device": self._settings.device,
        }

    async def _ask_worker(self, load: dict[str, Any], frame: dict[str, Any]) -> dict[str, Any]:
        for _ in range(_DIES_AT_MOST):
            try:
                return await self._worker.run(load, frame, limit_s=self._settings.limits.task_s)
            except WorkerDied as died:
                _log.warning("%s", died)
                last = died
        raise TaskFailed(TaskFailure.WORKER_DIED, str(last)) from last

    def _check(
        self, task: Task, plan: Plan, *, model: Path, files: RunFiles, reply: _Reply
    ) -> Finished:
        metrics, num_examples = _checked_metrics(reply.answer)
        update, local = None, files.local
        kept = self._workshop.kept
        if task.kind is TaskKind.TRAIN:
            formed = form_update(reply.arrays, model, rules=plan.arrays, kept=kept)
            update, local = formed.update, formed.local
        context = kept.take(reply.state)[0] if reply.state.exists() else files.context
        result = _result(task, metrics=metrics, num_examples=num_examples, update=update)
        return Finished(result, RunFiles(context=context, local=local))

    def _kept(self, digest: str | None) -> Path | None:
        return None if digest is None else self._workshop.kept.path(digest)


def stable_number(name: str) -> int:
    """Return the id, in [0, 2**63), that stands for a name where Flower wants a number."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") >> 1


def _checked_metrics(answer: dict[str, Any]) -> tuple[dict[str, Any], float | None]:
    metrics, num_examples = answer.get("metrics", {}), answer.get("num_examples")
    if not isinstance(metrics, dict):
        raise TaskFailed(TaskFailure.REPLY_INVALID, "got metrics that are no table")
    for name, value in {**metrics, "num-examples": num_examples}.items():
        for number in value if isinstance(value, list) else [value]:
            if isinstance(number, float) and not math.isfinite(number):
                raise TaskFailed(TaskFailure.NON_FINITE, f"metric {name!r} is {number}")
    return metrics, num_examples


def _result(task: Task, **values: Any) -> TaskResult:
    try:
        result = TaskResult(fence=task.fence, model=task.model, **values)
        size_bytes = len(result.model_dump_json().encode()) + _LATER_BYTES
        if size_bytes > MAX_DOCUMENT_BYTES:
            detail = f"got metrics of {size_bytes} bytes, at most {MAX_DOCUMENT_BYTES} can be sent"
            raise TaskFailed(TaskFailure.REPLY_INVALID, detail)
        document_digest(result)  # the coordinator knows a repeated answer by it
    except (ValidationError, InvalidDocument) as error:
        detail = f"the app's metrics cannot be sent: {error}"
        raise TaskFailed(TaskFailure.REPLY_INVALID, detail) from error
    return result
