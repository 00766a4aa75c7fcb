"""Child processes of a benchmark: started, watched, measured by /proc, ended by their ids."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

STOP_S = 1.0
"""How long processes may take to end by themselves; what they did is measured by then."""
_TICKS = os.sysconf("SC_CLK_TCK")


class BenchmarkFailed(Exception):
    """A process ended, a limit was reached, or a result is wrong."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Of a process and its descendants: CPU seconds (ended ones included), resident bytes."""

    cpu_s: float
    rss_bytes: int


class Processes:
    """The processes of one platform; what they print goes to `<folder>/<name>.log`."""

    def __init__(self, folder: Path, *, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = {**os.environ, **environment}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: Sequence[str]) -> Path:
        """Start a command in a session of its own and return its log file."""
        log = self._folder / f"{name}.log"
        with log.open("wb") as out:
            self._running[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=self._environment,
                cwd=self._folder,
                start_new_session=True,
            )
        return log

    def call(self, command: Sequence[str], *, limit_s: float) -> str:
        """Run a command to its end and return what it printed."""
        done = subprocess.run(
            command,
            env=self._environment,
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
        if done.returncode != 0:
            raise BenchmarkFailed(f"{' '.join(command)}: {done.stdout[-800:]}{done.stderr[-800:]}")
        return done.stdout

    def pid(self, name: str) -> int:
        """Return the id of a started process."""
        return self._running[name].pid

    def names(self) -> list[str]:
        """Return the names of what was started."""
        return list(self._running)

    def check(self) -> None:
        """Raise BenchmarkFailed where a process has ended by itself."""
        for name, process in self._running.items():
            if process.poll() is not None:
                log = self._folder / f"{name}.log"
                text = log.read_text(encoding="utf-8", errors="replace")
                raise BenchmarkFailed(f"{name} ended with {process.returncode}:\n{text[-1500:]}")

    def wait(self, until: Callable[[], object], *, what: str, limit_s: float) -> None:
        """Look every 50 ms whether `until` is true."""
        end = time.monotonic() + limit_s
        while not until():
            self.check()
            if time.monotonic() > end:
                raise BenchmarkFailed(f"{what}: not after {limit_s:.0f} s")
            time.sleep(0.05)

    def wait_for_line(self, log: Path, start: str, *, limit_s: float) -> str:
        """Return the rest of the first line of `log` that begins with `start`."""
        found: list[str] = []

        def look() -> bool:
            for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
                if line.startswith(start):
                    found.append(line.removeprefix(start).strip())
                    return True
            return False

        self.wait(look, what=f"{log.name}: {start}", limit_s=limit_s)
        return found[0]

    def usage(self) -> dict[str, Usage]:
        """Return what each process and its descendants have used so far."""
        children = _children()
        return {name: _usage(_tree(p.pid, children)) for name, p in self._running.items()}

    def tree(self, name: str) -> list[int]:
        """Return the ids of a process and its descendants, the process first."""
        return _tree(self._running[name].pid, _children())

    def stop(self) -> None:
        """End everything that was started here and what that started, by process id."""
        children = _children()
        started = [p.pid for p in self._running.values()]
        all_pids = {pid: _start_time(pid) for root in started for pid in _tree(root, children)}
        for process in reversed(self._running.values()):
            if process.poll() is None:
                process.terminate()
        end = time.monotonic() + STOP_S
        for process in reversed(self._running.values()):
            try:
                process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for pid, born in all_pids.items():  # orphans: the same process, not one of the same id
            if born is not None and _start_time(pid) == born:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._running.clear()


@contextlib.contextmanager
def processes(folder: Path, *, environment: Mapping[str, str]) -> Iterator[Processes]:
    """Run processes that are ended at the end, whatever happens."""
    folder.mkdir(parents=True, exist_ok=True)
    group = Processes(folder, environment=environment)
    try:
        yield group
    finally:
        group.stop()


def free_ports(count: int) -> list[int]:
    """Return TCP ports of the loopback device that are free at this moment."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in held]
    for server in held:
        server.close()
    return ports


def used(before: Mapping[str, Usage], after: Mapping[str, Usage]) -> dict[str, float]:
    """Return the CPU seconds between two looks, by process."""
    return {name: after[name].cpu_s - before[name].cpu_s for name in after if name in before}


def _stat(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()  # the name may hold spaces; field 3 is first


def _start_time(pid: int) -> str | None:
    fields = _stat(pid)
    return None if fields is None or fields[0] == "Z" else fields[19]


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            found.setdefault(int(fields[1]), []).append(int(entry.name))
    return found


def _tree(root: int, children: Mapping[int, list[int]]) -> list[int]:
    found = [root]
    for pid in found:
        found.extend(children.get(pid, []))
    return found


def _usage(pids: Sequence[int]) -> Usage:
    cpu, rss = 0, 0
    for pid in pids:
        if fields := _stat(pid):
            # utime, stime and those of children that were waited for
            cpu += sum(int(field) for field in fields[11:15])
            rss += int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
    return Usage(cpu / _TICKS, rss)
