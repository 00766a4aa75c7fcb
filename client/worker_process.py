"""The agent's side of the worker: started once, kept warm over rounds, replaced when it dies.

One worker holds one app; another app gets a new process, since two apps' modules may carry the
same names. The worker sees neither the agent's key nor its environment but what is listed here.
What the frames mean is decided in `worker.py`; when to try again is left to the caller.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedward.protocol.documents import TaskFailure

from .errors import TaskFailed, WorkerDied
from .frames import LENGTH_BYTES, BrokenFrame, body_size, frame_bytes, parse_body
from .printed import PrintedText

_INHERITED = frozenset(
    {"PATH", "HOME", "LANG", "TZ", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH"}
)
_INHERITED_PREFIXES = (
    "LC_", "CUDA_", "NVIDIA_", "HIP_", "ROCR_", "OMP_", "MKL_", "OPENBLAS_", "PYTORCH_",
    "FEDWARD_TORCH_",
)  # fmt: skip


def worker_command() -> list[str]:
    """Return the command line of a worker; -P keeps its working folder off the import path."""
    return [sys.executable, "-P", "-m", "fedward.client.worker"]


def worker_environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """Return what of the agent's environment a worker may see: no proxies, no credentials."""
    kept = {
        name: value
        for name, value in inherited.items()
        if name in _INHERITED or name.startswith(_INHERITED_PREFIXES)
    }
    if "PYTHONPATH" in kept:  # relative entries count from the agent's working folder
        entries = kept["PYTHONPATH"].split(os.pathsep)
        kept["PYTHONPATH"] = os.pathsep.join(str(Path(entry).absolute()) for entry in entries)
    fixed = {"FLWR_TELEMETRY_ENABLED": "0", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
    return kept | fixed


LOAD_LIMIT_S = 600.0
"""Longest start of a worker with its app: a slow disk reads torch for minutes."""


class WorkerProcess:
    """A worker that is started when first asked.

    `folder` is its working folder; `load_s` is how long it may take to start and load the app,
    `stop_s` how long an idle worker may take to end.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str],
        load_s: float = LOAD_LIMIT_S,
        stop_s: float = 5.0,
    ) -> None:
        self._command = list(command)
        self._folder = folder
        self._environment = dict(environment)
        self._load_s = load_s
        self._stop_s = stop_s
        self._process: asyncio.subprocess.Process | None = None
        self._loaded: Mapping[str, Any] | None = None
        self._asked = 0
        self._printed = PrintedText()

    @property
    def pid(self) -> int | None:
        """The running worker's process id."""
        return None if self._process is None else self._process.pid

    async def run(
        self, load: Mapping[str, Any], message: Mapping[str, Any], *, limit_s: float
    ) -> dict[str, Any]:
        """Hand `message` to the app that `load` names; return the worker's answer.

        `limit_s` is for the message alone: what the first one of a run loads is not its work.
        Whatever interrupts the call kills the worker: nothing goes on in the background.

        Raises:
            TaskFailed: the worker says so, or it took too long (resources).
            WorkerDied: it ended, or broke its protocol; the next call starts another.
        """
        self._printed.begin()
        try:
            async with _limit(self._load_s, f"the app is not loaded after {self._load_s:g} s"):
                await self._load(load)
            told = f"got no answer of the app within limits.task_s = {limit_s:g} s"
            async with _limit(limit_s, told):
                return await self._ask(message)
        except _TooSlow:
            await self._kill()
            raise
        except TaskFailed:
            raise
        except BaseException:
            await self._kill()
            raise
        finally:
            self._printed.end()

    async def _load(self, load: Mapping[str, Any]) -> None:
        if self._process is None or self._process.returncode is not None:
            await self._start()
        if self._loaded == load:
            return
        if self._loaded is not None:
            await self.close()
            await self._start()
        await self._ask(load)
        self._loaded = dict(load)

    async def close(self) -> None:
        """End the worker: it is idle, so closing its input is enough; else it is killed."""
        process, self._loaded = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._stop_s):
                await process.wait()
        await self._kill()

    async def _start(self) -> None:
        await self._kill()
        stderr = self._printed.open()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                cwd=self._folder,
                env=self._environment,
                start_new_session=True,  # the app's own child processes end with it
            )
        except OSError as error:
            self._printed.close()
            raise WorkerDied(f"the worker cannot be started: {error}") from error
        finally:
            os.close(stderr)

    async def _kill(self) -> None:
        process, self._process, self._loaded = self._process, None, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        if process.stdin is not None:
            process.stdin.close()
        await process.wait()
        self._printed.close()

    async def _ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise WorkerDied("the worker is not running")
        self._asked += 1
        frame = frame_bytes({**message, "number": self._asked})
        try:
            process.stdin.write(frame)
            await process.stdin.drain()
            head = await process.stdout.readexactly(LENGTH_BYTES)
            answer = parse_body(await process.stdout.readexactly(body_size(head)))
        except (OSError, asyncio.IncompleteReadError, BrokenFrame) as error:
            raise WorkerDied(f"the worker {process.pid} ended: {error}") from error
        if answer.get("number") != self._asked:
            number = answer.get("number")
            raise WorkerDied(
                f"worker {process.pid}: got the answer to request {number}, expected {self._asked}"
            )
        if answer.get("ok") is True:
            return answer
        failure, told = _failure(answer.get("failure")), str(answer.get("message", ""))
        raise TaskFailed(failure, told.removeprefix(f"{failure.value}: "))


class _TooSlow(TaskFailed):
    """The worker may still be busy: unlike after another failure it cannot be asked again."""


@contextlib.asynccontextmanager
async def _limit(limit_s: float, told: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(limit_s):
            yield
    except TimeoutError as error:
        raise _TooSlow(TaskFailure.RESOURCES, told) from error


def _failure(name: object) -> TaskFailure:
    try:
        return TaskFailure(name)  # type: ignore[arg-type]  # whatever else it is, it is refused
    except ValueError:
        return TaskFailure.APP_RAISED
