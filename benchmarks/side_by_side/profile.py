"""Where the time of running processes goes: py-spy beside them, and its stacks as a text.

A raw file has one line per stack, "outermost;...;innermost count": speedscope and flamegraph.pl
open it as it is.
"""

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

SAMPLES_PER_S = 250
SHOWN = 25


class Recorders:
    """One py-spy for each process; they run until `finish`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, pids: Mapping[str, int]) -> None:
        """Attach to the processes, by name."""
        self._folder.mkdir(parents=True, exist_ok=True)
        spy = str(Path(sys.executable).parent / "py-spy")
        for name, pid in pids.items():
            command = [spy, "record", "--pid", str(pid), "--format", "raw", "--nonblocking"]
            command += ["--rate", str(SAMPLES_PER_S), "--duration", "3600"]
            command += ["--output", str(self._folder / f"{name}.raw")]
            with (self._folder / f"{name}.py-spy.log").open("wb") as log:
                self._running[name] = subprocess.Popen(command, stdout=log, stderr=log)

    def finish(self) -> list[Path]:
        """Stop recording, write a summary beside each raw file and return the summaries."""
        for process in self._running.values():
            process.send_signal(signal.SIGINT)
        written = []
        for name, process in self._running.items():
            process.wait(60.0)
            raw = self._folder / f"{name}.raw"
            if raw.is_file():
                summary = self._folder / f"{name}.txt"
                summary.write_text(summarise(raw.read_text(encoding="utf-8")), encoding="utf-8")
                written.append(summary)
        self._running.clear()
        return written


def summarise(raw: str) -> str:
    """Return the functions of a raw recording by their own samples and by cumulative ones."""
    own: Counter[str] = Counter()
    cumulative: Counter[str] = Counter()
    total = 0
    for line in raw.splitlines():
        stack, _, count = line.rpartition(" ")
        frames = [_function(frame) for frame in stack.split(";")]
        total += int(count)
        own[frames[-1]] += int(count)
        for frame in set(frames):
            cumulative[frame] += int(count)
    lines = [f"{total} samples of running threads, {SAMPLES_PER_S} a second"]
    for title, counts in (("own", own), ("cumulative", cumulative)):
        lines += ["", f"{title} samples", ""]
        lines += [
            f"{count:7d}  {100 * count / max(total, 1):5.1f} %  {name}"
            for name, count in counts.most_common(SHOWN)
        ]
    return "\n".join(lines) + "\n"


def _function(frame: str) -> str:
    """Return "name (file)" without the line number, so that a function is counted once."""
    name, _, place = frame.rpartition(" (")
    return f"{name} ({place.rpartition(':')[0] or place.rstrip(')')})" if name else frame
