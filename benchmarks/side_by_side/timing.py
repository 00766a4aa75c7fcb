"""Round times of a run, and the machine that they were taken on."""

import os
import platform
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RunTimes:
    """Seconds of each round, the first apart; CPU seconds by process over the whole run."""

    first_s: float
    steady_s: tuple[float, ...]
    cpu_s: Mapping[str, float]

    @property
    def rounds(self) -> int:
        return 1 + len(self.steady_s)

    @property
    def cpu_per_round_s(self) -> float:
        return sum(self.cpu_s.values()) / self.rounds


def from_ends(started: float, ends: list[float], *, cpu_s: Mapping[str, float]) -> RunTimes:
    """Return the times of rounds that followed each other, from when each ended."""
    steps = [after - before for before, after in zip([started, *ends], ends, strict=False)]
    return RunTimes(steps[0], tuple(steps[1:]), cpu_s)


def median_s(runs: list[RunTimes]) -> float:
    """Return the median of all steady rounds."""
    return statistics.median(second for run in runs for second in run.steady_s)


def machine() -> str:
    """Say in one line what this machine is."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{model}, {cores} cores, Python {platform.python_version()}, {platform.system()}"
