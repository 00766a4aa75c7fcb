"""The warm worker: `python -m fedward.client.worker` runs one app, message after message.

The agent starts it with pipes on stdin and stdout and speaks frames (`frames.py`):

    load {"app": absolute directory or recipe name, "clientapp": "pkg.module:attribute" or null,
          "device": "auto"}
        -> {"ok": true, "config": {the app's own settings, flattened}}
    run  {"kind": "train" | "evaluate" | "query", "action": null, "arrays_path": null,
          "config": {}, "run_config": {}, "node_config": {}, "run_id": 1, "node_id": 2, "seed": 0,
          "state_path_in": null, "state_path_out": null, "reply_path": null, "device": "auto"}
        -> {"ok": true, "metrics": {}, "num_examples": 5, "arrays": true}
    either -> {"ok": false, "failure": a TaskFailure, "message": for the site's own log}

A request's `number`, if it has one, is in its answer. Only the process that got the request
answers: one that the app forked, and that comes back from the app, ends there.
`run_config` holds the plan's overrides only; `device` is put into `node_config` unless the site
has such a setting. A `train` reply's arrays are written to
`reply_path`, the app's state to `state_path_out` when the answer is ok.

Decides: that the app's prints go to stderr and never into a frame; that the same seed, state and
arrays give the same bits, in a fresh process or a warm one; that whatever the app raises,
`SystemExit` included, becomes a typed failure. A crash of the process is the agent's to notice.
One app per process: what an app did to the interpreter ends with it, and after an app that did
not load the process starts anew by itself, without its modules. When stdin closes the process
ends, in the middle of a message too, so that no worker outlives its agent.
"""

from __future__ import annotations

import contextlib
import importlib.util
import mmap
import os
import random  # noqa: TID251  seeded for apps that draw from it; nothing here does
import select
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, NoReturn

import numpy as np
from pydantic import BaseModel, ConfigDict

from fedward.client.errors import TaskFailed
from fedward.client.frames import frame_bytes, read_frame
from fedward.client.recipes import registry
from fedward.client.training.visibility import restrict_devices
from fedward.protocol.arrays import Arrays, decode, encode
from fedward.protocol.documents import Scalar, TaskFailure, TaskKind
from fedward.protocol.errors import InvalidArrays

if TYPE_CHECKING:
    from fedward.client.flower import Call, LoadedApp, Reply
    from fedward.client.training.flower import State

MESSAGE_LIMIT = 20_000
"""Characters of a traceback that reach the agent's log; the end is kept."""
EXIT_GRACE_S = 2.0
"""How long a worker that lost its agent may take to end by itself."""
LOAD_SEED = 0
"""Seed while the app is imported, so that what it draws then is the same in every process."""


class _Request(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class LoadRequest(_Request):
    """See the module's docstring."""

    op: Literal["load"]
    app: str
    clientapp: str | None = None
    device: str = "auto"


class RunRequest(_Request):
    """See the module's docstring."""

    op: Literal["run"]
    kind: str
    action: str | None = None
    arrays_path: Path | None = None
    config: dict[str, Scalar | list[float] | list[int] | list[str]] = {}
    run_config: dict[str, Scalar] = {}
    node_config: dict[str, Scalar] = {}
    run_id: int
    node_id: int
    seed: int
    state_path_in: Path | None = None
    state_path_out: Path | None = None
    reply_path: Path | None = None
    device: str = "auto"


class Worker:
    """Answers requests; holds the one loaded app."""

    def __init__(self, *, threads: int) -> None:
        self._threads = threads
        self._home = Path.cwd()
        self._loaded: tuple[str, LoadedApp] | None = None
        self._device = "auto"
        self._touched = False

    @property
    def spoiled(self) -> bool:
        """Whether an app was imported in part: its modules would mix with the next one's."""
        return self._touched and self._loaded is None

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Do what one frame asks and return the answer; what the app raises is a failure.

        Raises:
            pydantic.ValidationError: the request is not one of the two.
        """
        work = LoadRequest if request.get("op") == "load" else RunRequest
        parsed = work.model_validate(request)
        raised = TaskFailure.APP_RAISED
        try:
            if isinstance(parsed, RunRequest):
                return self._run(parsed)
            raised = TaskFailure.APP_INVALID
            return self._load(parsed)
        except TaskFailed as error:
            return _failure(error.failure, error)
        except BaseException as error:  # noqa: BLE001  foreign code raises anything, SystemExit too
            return _failure(_kind_of(error, otherwise=raised), error)
        finally:
            self._return_home()

    def _load(self, request: LoadRequest) -> dict[str, Any]:
        if self._loaded is not None:
            if self._loaded[0] != request.app:
                raise TaskFailed(
                    TaskFailure.APP_INVALID,
                    f"got a second app {request.app!r}, this process runs {self._loaded[0]!r}",
                )
            return {"ok": True, "config": self._loaded[1].config}
        recipe = None if Path(request.app).is_absolute() else _recipe(request.app)
        self._touched = True
        self._device = restrict_devices(request.device, os.environ)
        from fedward.client.flower import load_bundle, load_installed
        from fedward.client.training.flower import make_records_lazy

        make_records_lazy()
        if importlib.util.find_spec("torch") is not None:
            # Here, not when an app first wants it: its generators must be seeded before.
            from fedward.client.training.determinism import fix_algorithms

            fix_algorithms(threads=self._threads)
        _seed_everything(LOAD_SEED)
        with _no_forked_process():
            if recipe is None:
                loaded = load_bundle(Path(request.app), clientapp=request.clientapp)
            else:
                loaded = load_installed(recipe.clientapp, config=recipe.defaults)
        self._loaded = (request.app, loaded)
        return {"ok": True, "config": loaded.config}

    def _run(self, request: RunRequest) -> dict[str, Any]:
        from fedward.client.flower import call_app

        if self._loaded is None:
            raise TaskFailed(TaskFailure.APP_INVALID, "no app is loaded")
        loaded = self._loaded[1]
        call = self._call(request, loaded)
        state = _read_state(request.state_path_in)
        arrays = None if request.arrays_path is None else _map_arrays(request.arrays_path)
        _seed_everything(request.seed)
        with _no_forked_process():
            reply = call_app(loaded.app, call, arrays=arrays, state=state)
        try:
            return _store(reply, request)
        except InvalidArrays as error:
            raise TaskFailed(TaskFailure.REPLY_INVALID, str(error)) from error
        except OSError as error:
            raise TaskFailed(TaskFailure.RESOURCES, f"cannot write the reply: {error}") from error

    def _call(self, request: RunRequest, loaded: LoadedApp) -> Call:
        from fedward.client.flower import Call, fuse_config

        kind, _, action = request.kind.partition(".")
        device = self._device if request.device == "auto" else request.device
        if self._device == "cuda" and request.device.startswith("cuda:"):
            device = "cuda"  # the only one left visible
        return Call(
            kind=TaskKind(kind),
            action=request.action or action or None,
            config=request.config,
            run_config=fuse_config(loaded.config, request.run_config),
            # For recipes; a site's own "device" setting stands.
            node_config={"device": device, **request.node_config},
            run_id=request.run_id,
            node_id=request.node_id,
        )

    def _return_home(self) -> None:
        # An app that changes directory once per message would else end up somewhere new.
        with contextlib.suppress(OSError):
            os.chdir(self._home)


@contextlib.contextmanager
def _no_forked_process() -> Iterator[None]:
    """End every process but the one that came in: a second one would answer, too."""
    asked = os.getpid()
    try:
        yield
    finally:
        if os.getpid() != asked:
            os.write(2, b"a process that the app forked came back from the app: ended\n")
            os._exit(0)


def _recipe(name: str) -> registry.Recipe:
    try:
        return registry.recipe(name)
    except registry.UnknownRecipe as error:
        raise TaskFailed(TaskFailure.APP_INVALID, str(error)) from error


def _read_state(path: Path | None) -> State:
    from fedward.client.training.flower import DamagedState, State, read_state

    if path is None:
        return State()
    try:
        with path.open("rb") as stream:
            return read_state(stream)
    except (OSError, DamagedState) as error:
        raise TaskFailed(TaskFailure.RESOURCES, f"app state {path}: {error}") from error


def _map_arrays(path: Path) -> Arrays:
    try:
        with path.open("rb") as stream:
            # The views keep the map alive; an app gets copies.
            return decode(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError, InvalidArrays) as error:
        raise TaskFailed(TaskFailure.MODEL_INVALID, f"arrays {path}: {error}") from error


def _store(reply: Reply, request: RunRequest) -> dict[str, Any]:
    from fedward.client.training.flower import write_state

    if reply.arrays is not None:
        if request.reply_path is None:
            raise TaskFailed(TaskFailure.REPLY_INVALID, "a train request without reply_path")
        parts = encode(reply.arrays)
        with request.reply_path.open("wb") as stream:
            stream.writelines(parts)
    if request.state_path_out is not None:
        with request.state_path_out.open("wb") as stream:
            write_state(stream, reply.state)
    return {
        "ok": True,
        "metrics": reply.metrics,
        "num_examples": reply.num_examples,
        "arrays": reply.arrays is not None,
    }


def _seed_everything(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002  the global state is what apps draw from
    if "torch" in sys.modules:
        from fedward.client.training.determinism import seed_torch

        seed_torch(seed)


def _kind_of(error: BaseException, *, otherwise: TaskFailure) -> TaskFailure:
    # torch.OutOfMemoryError is a RuntimeError; its name is known without importing torch.
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return TaskFailure.RESOURCES
    return otherwise


def _failure(failure: TaskFailure, error: BaseException) -> dict[str, Any]:
    if isinstance(error, TaskFailed):
        text = str(error)
    else:
        # What happened first, in case the log keeps only the beginning.
        what = "".join(traceback.format_exception_only(error))
        text = what + "".join(traceback.format_exception(error))[-MESSAGE_LIMIT:]
    return {"ok": False, "failure": failure.value, "message": text}


def _framed(answer: dict[str, Any], *, echo: dict[str, Any]) -> bytes:
    """Return the answer as a frame; one that fits none is the app's failure, not the worker's."""
    try:
        return frame_bytes(answer | echo)
    except (TypeError, ValueError) as error:
        return frame_bytes(_failure(TaskFailure.REPLY_INVALID, error) | echo)


# ---------------------------------------------------------------- the process


def _take_streams() -> tuple[FileIO, BinaryIO]:
    """Keep the pipes for frames; give everyone else an empty stdin, and stderr for stdout."""
    # Unbuffered: what is not read yet is there for the process that replaces this one.
    requests = os.fdopen(os.dup(0), "rb", buffering=0)
    answers = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(line_buffering=True)
    return requests, answers


def _end_with(requests: FileIO) -> None:
    """End the process soon after the agent's end of the pipe is closed, busy or not."""
    if not hasattr(select, "poll"):
        return
    poller = select.poll()
    poller.register(requests.fileno(), 0)  # 0: hang-ups and errors only

    def watch() -> None:
        poller.poll()
        threading.Event().wait(EXIT_GRACE_S)
        os._exit(0)

    threading.Thread(target=watch, name="agent-watch", daemon=True).start()


def _threads() -> int:
    asked = os.environ.get("FEDWARD_TORCH_THREADS", "")
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _prepare_environment() -> None:
    """Set what must be set before Python, flwr or torch start; may replace the process."""
    os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # else cuBLAS may vary its sums
    if "PYTHONHASHSEED" not in os.environ:
        # Sets of strings are ordered by hash: a new order in every process is another model.
        os.environ["PYTHONHASHSEED"] = "0"
        _become_new(os.environ)


def _become_new(environment: Mapping[str, str]) -> NoReturn:
    """Replace the process by a fresh one with the same command line, pid and pipes."""
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)  # noqa: S606


def main() -> None:
    """Answer frames until stdin closes."""
    _prepare_environment()
    # Ctrl-C reaches the whole process group; the agent decides what becomes of its worker.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    environment = dict(os.environ)
    requests, answers = _take_streams()
    _end_with(requests)
    if not sys.flags.safe_path:
        # `-m` puts the working folder in front: an app must not import from there.
        del sys.path[0]
    worker = Worker(threads=_threads())
    while (request := read_frame(requests)) is not None:
        # Echoed, so that the agent never takes one request's answer for another's.
        echo = {"number": request["number"]} if "number" in request else {}
        answers.write(_framed(worker.answer(request), echo=echo))
        answers.flush()
        if worker.spoiled:
            os.dup2(requests.fileno(), 0)
            os.dup2(answers.fileno(), 1)
            _become_new(environment)


if __name__ == "__main__":
    main()
