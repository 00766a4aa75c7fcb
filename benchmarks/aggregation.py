"""What does it cost to combine the updates of a round? Beside one read of memory, and Flower.

The coordinator's own path: memory-mapped updates, decoded and added in float64 in the order of
the sites, then the strategy's step. The same updates are summed by the function that Flower's
FedAvg calls. All in this process and one thread, the contenders alternating; what counts is the
median. Files lie in memory (tmpfs or the page cache), so no disk is measured.

    python benchmarks/aggregation.py [--quick] [--json]
"""

import argparse
import json
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict
from flwr.serverapp.strategy.strategy_utils import aggregate_arrayrecords
from side_by_side.processes import BenchmarkFailed
from side_by_side.timing import machine

from fedward.coordinator.aggregation import combine
from fedward.coordinator.blobs import map_file
from fedward.protocol.arrays import decode, encode
from fedward.protocol.documents import AppRef, Plan, RoundRules
from fedward.strategies.base import ServerState

LAYERS = 10
MEMORY = Path("/dev/shm")  # noqa: S108  a folder of our own is made in it
PEAK_EVERY_S = 0.002
WEIGHT = "num-examples"


@dataclass(frozen=True, slots=True)
class Size:
    """Updates of `elements` float32, and how often each contender runs."""

    updates: int
    elements: int
    repeats: int
    flower_repeats: int

    @property
    def update_bytes(self) -> int:
        return 4 * self.elements


FULL = Size(updates=50, elements=25_000_000, repeats=5, flower_repeats=3)
QUICK = Size(updates=8, elements=25_000_000, repeats=3, flower_repeats=3)


@dataclass(frozen=True, slots=True)
class Taken:
    """Medians of a contender: seconds by the clock and of the processor."""

    wall_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Found:
    """Median times, and the largest anonymous memory of fedward beside what was there."""

    read: Taken
    mapped_read: Taken
    fedward: Taken
    flower: Taken
    anonymous_bytes: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="8 updates instead of 50")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    arguments = parser.parse_args()
    size = QUICK if arguments.quick else FULL
    needed = size.updates * size.update_bytes
    room = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 1.2 * needed
    with tempfile.TemporaryDirectory(
        prefix="fedward-bench-", dir=MEMORY if room else None
    ) as folder:
        found = measure(write_updates(Path(folder), size), size)
    show(found, size)
    if arguments.json:
        print(json.dumps(result(found, size)))


def result(found: Found, size: Size) -> dict[str, float]:
    """Return the figures that the targets are about."""
    return {
        "over_memory_read": round(found.fedward.wall_s / found.read.wall_s, 2),
        "flwr_over_fedward": round(found.flower.wall_s / found.fedward.wall_s, 2),
        "rss_updates": round(found.anonymous_bytes / size.update_bytes, 2),
    }


# ---------------------------------------------------------------- the updates


def write_updates(folder: Path, size: Size) -> list[Path]:
    """Write the updates as arrays files, by site; every one has other numbers."""
    rng = np.random.default_rng(7)
    base = rng.standard_normal(size.elements, np.float32)
    names = [f"layer{number}.weight" for number in range(LAYERS)]
    files = []
    for number in range(size.updates):
        parts = np.array_split(base + np.float32(0.01 * number), LAYERS)
        file = folder / f"site-{number:03}"
        with file.open("wb") as out:
            out.writelines(encode(dict(zip(names, parts, strict=True))))
        files.append(file)
    return files


def weights(size: Size) -> list[float]:
    return [float(1 + number) for number in range(size.updates)]


# ---------------------------------------------------------------- the contenders


def measure(files: Sequence[Path], size: Size) -> Found:
    plan = _plan()
    with files[0].open("rb") as first:
        model = {k: np.zeros_like(v) for k, v in decode(first.read()).items()}

    def ours() -> dict[str, Any]:
        state = ServerState(0, model, {})
        after, _ = combine(plan, state, _mapped(files, size))
        return after.model

    resident = [_numbers(file) for file in files]

    def read() -> None:
        for numbers in resident:
            numbers.max()

    def read_mapped() -> None:
        for file in files:
            _numbers(file).max()

    reads, mapped, own = _alternate([read, read_mapped, ours], repeats=size.repeats)
    peak = _anonymous_peak(ours)
    records = [_record(file, weight) for file, weight in zip(files, weights(size), strict=True)]

    def theirs() -> ArrayRecord:
        return aggregate_arrayrecords(records, WEIGHT)

    _require_equal(ours(), theirs())
    flowers, again = _alternate([theirs, ours], repeats=size.flower_repeats)
    return Found(
        read=_taken(reads),
        mapped_read=_taken(mapped),
        fedward=_taken(own + again),
        flower=_taken(flowers),
        anonymous_bytes=peak,
    )


def _plan() -> Plan:
    digest = "sha256:" + "0" * 64
    return Plan(
        name="benchmark",
        study="benchmark",
        app=AppRef(bundle=digest),
        model=digest,
        rounds=RoundRules(count=1),
    )


def _numbers(file: Path) -> np.ndarray:
    """Map a file as one array of integers, whose largest is found at the speed of memory."""
    view = np.frombuffer(map_file(file), np.uint8)
    return view[: view.size // 8 * 8].view(np.uint64)


def _mapped(files: Sequence[Path], size: Size) -> Iterator[tuple[float, dict[str, Any]]]:
    """Yield the updates as the coordinator does, each mapped when its turn comes."""
    for file, weight in zip(files, weights(size), strict=True):
        yield weight, decode(map_file(file))


def _record(file: Path, weight: float) -> RecordDict:
    arrays = ArrayRecord({k: Array(v) for k, v in decode(file.read_bytes()).items()})
    return RecordDict({"arrays": arrays, "metrics": MetricRecord({WEIGHT: weight})})


def _require_equal(ours: dict[str, Any], theirs: ArrayRecord) -> None:
    for name, array in theirs.items():
        if not np.allclose(ours[name], array.numpy(), rtol=1e-4, atol=1e-4):
            raise BenchmarkFailed(f"array {name!r}: the two sums differ")


# ---------------------------------------------------------------- measuring


def _alternate(
    contenders: Sequence[Callable[[], object]], *, repeats: int
) -> list[list[tuple[float, float]]]:
    """Return (clock, processor) seconds of each contender's runs, a first one not counted."""
    taken: list[list[tuple[float, float]]] = [[] for _ in contenders]
    for number in range(repeats + 1):
        for seconds, contender in zip(taken, contenders, strict=True):
            begun, begun_cpu = time.perf_counter(), time.process_time()
            contender()
            if number:
                cpu_s = time.process_time() - begun_cpu
                seconds.append((time.perf_counter() - begun, cpu_s))
    return taken


def _taken(runs: Sequence[tuple[float, float]]) -> Taken:
    wall, cpu = zip(*runs, strict=True)
    return Taken(statistics.median(wall), statistics.median(cpu))


def _anonymous_peak(work: Callable[[], object]) -> int:
    """Return the bytes of anonymous memory that `work` needs at most beside what is there."""
    done = threading.Event()
    before, peak = _anonymous(), 0

    def watch() -> None:
        nonlocal peak
        while not done.wait(PEAK_EVERY_S):
            peak = max(peak, _anonymous())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        kept = work()
        peak = max(peak, _anonymous())
        del kept
    finally:
        done.set()
        watcher.join()
    return max(0, peak - before)


def _anonymous() -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return 1024 * int(line.split()[1])
    raise BenchmarkFailed("this system does not tell anonymous memory (/proc/self/status)")


def show(found: Found, size: Size) -> None:
    gigabytes = size.updates * size.update_bytes / 1e9
    print(f"{size.updates} updates of {size.elements / 1e6:g} million float32. {machine()}")
    rows = {
        "one read, memory": found.read,
        "one read, mapped anew": found.mapped_read,
        "fedward": found.fedward,
        "flwr": found.flower,
    }
    print(f"{'':24}{'median s':>10}{'CPU s':>9}{'GB/s':>8}{'/ read':>9}")
    for name, taken in rows.items():
        print(
            f"{name:24}{taken.wall_s:10.3f}{taken.cpu_s:9.3f}{gigabytes / taken.wall_s:8.1f}"
            f"{taken.wall_s / found.read.wall_s:9.2f}"
        )
    updates = found.anonymous_bytes / size.update_bytes
    print(f"fedward's anonymous memory: {updates:.2f} updates")


if __name__ == "__main__":
    main()
