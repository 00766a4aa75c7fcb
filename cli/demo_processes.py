"""Child processes that end with the demo, whatever happens to it; each by its own process id."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from .errors import CliError

STOP_S = 8.0
"""How long a child may take to end after SIGTERM before it is killed."""
LOOK_S = 0.05


class Children:
    """Processes of `python -m fedward.cli …`, their output in files.

    They get a session of their own: Ctrl-C reaches the demo alone, which then stops them in the
    opposite order of their starts.
    """

    def __init__(self, folder: Path, *, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = {**os.environ, **environment}
        self._running: list[tuple[str, subprocess.Popen[bytes]]] = []

    def start(self, name: str, *arguments: str) -> Path:
        """Start `fedward ARGUMENTS` and return the file that its output goes to."""
        log = self._folder / f"{name}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "fedward.cli", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
            )
        self._running.append((name, process))
        return log

    def check(self) -> None:
        """Raise CliError where a child has ended by itself."""
        for name, process in self._running:
            if process.poll() is not None:
                log = self._folder / f"{name}.log"
                last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-5:]
                raise CliError(
                    f"{name} ended with code {process.returncode}; the end of {log}:\n  "
                    + "\n  ".join(last)
                )

    def wait_for_line(self, log: Path, start: str, *, limit_s: float) -> str:
        """Return the rest of the first line of `log` that begins with `start`.

        Raises:
            CliError: a child ended, or `limit_s` seconds passed.
        """
        until = time.monotonic() + limit_s
        while time.monotonic() < until:
            for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
                if line.startswith(start):
                    return line.removeprefix(start).strip()
            self.check()
            time.sleep(LOOK_S)
        raise CliError(f"{log}: no line that begins with {start!r} after {limit_s:.0f} s")

    def stop(self) -> None:
        """End all children and wait until they have ended."""
        for _, process in reversed(self._running):
            if process.poll() is None:
                process.terminate()
        until = time.monotonic() + STOP_S
        for _, process in reversed(self._running):
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._running.clear()


@contextlib.contextmanager
def children(folder: Path, *, environment: Mapping[str, str]) -> Iterator[Children]:
    """Run children that are stopped at the end; SIGTERM and SIGHUP count as Ctrl-C meanwhile."""
    group = Children(folder, environment=environment)
    before = {
        number: signal.signal(number, signal.default_int_handler)
        for number in (signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield group
    finally:
        # A second Ctrl-C must not leave half of them running.
        interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
        group.stop()
        signal.signal(signal.SIGINT, interrupt)
        for number, handler in before.items():
            signal.signal(number, handler)
