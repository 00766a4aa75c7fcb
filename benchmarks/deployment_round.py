"""How long is a round without training? fedward beside Flower's own deployment.

Three agents (SuperNodes) on this machine, each a process of its own, and an app that adds 1 to
the arrays; evaluation is off. Both platforms stay up while the other one is measured; their
runs alternate: fedward, Flower, fedward. What counts is the median of a run's rounds after the
first one, which loads the app. The sums are checked on both sides.

    python benchmarks/deployment_round.py [--quick] [--json] [--profile FOLDER]
"""

import argparse
import json
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from side_by_side.fedward import SITES, Fedward, fedward
from side_by_side.flower import Flower, Limits, flower
from side_by_side.profile import Recorders
from side_by_side.timing import RunTimes, machine, median_s

APP = Path(__file__).resolve().parent / "apps" / "add-one"
MB_ELEMENTS = 250_000
"""Numbers of float32 in a megabyte."""
QUICK_S = 40.0
"""Seconds from the start after which no more is measured than one steady round of each."""
WARM_UP_ROUNDS = 1
PROFILED_ROUNDS = 100


@dataclass(frozen=True, slots=True)
class Rounds:
    """How many rounds to run: of fedward twice, before and after Flower's."""

    fedward: int
    flower: int


SIZES = {1: Rounds(fedward=20, flower=6), 100: Rounds(fedward=5, flower=4)}
QUICK_SIZES = {1: Rounds(fedward=10, flower=3)}


@dataclass(frozen=True, slots=True)
class Compared:
    """The runs of both platforms with a model of one size."""

    fedward: list[RunTimes]
    flower: list[RunTimes]

    @property
    def ratio(self) -> float:
        return median_s(self.flower) / median_s(self.fedward)


def main() -> None:
    arguments = _arguments()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fedward-bench-") as folder:
        if arguments.profile is not None:
            _profile(Path(folder), arguments.profile, megabytes=arguments.megabytes)
            return
        found = _measure(Path(folder), quick=arguments.quick, begun=begun)
    _show(found)
    if arguments.json:
        large = found.get(100)
        result = {
            "flwr_1mb_s": round(median_s(found[1].flower), 4),
            "fedward_1mb_s": round(median_s(found[1].fedward), 4),
            "ratio_1mb": round(found[1].ratio, 2),
            "ratio_100mb": None if large is None else round(large.ratio, 2),
        }
        print(json.dumps(result))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="1 MB only, few rounds, under 50 s")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument(
        "--profile",
        type=Path,
        metavar="FOLDER",
        help="fedward alone, with py-spy on coordinator, agents and workers; stacks to FOLDER",
    )
    parser.add_argument(
        "--megabytes", type=int, default=1, help="size of the model with --profile [1]"
    )
    return parser.parse_args()


def _measure(folder: Path, *, quick: bool, begun: float) -> dict[int, Compared]:
    with (
        flower(folder / "flower", app=APP) as theirs,
        fedward(folder / "fedward", app=APP) as ours,
        ThreadPoolExecutor(1) as starter,
    ):
        # Nothing is measured while both start; fedward's warm-up takes the loading of the app.
        starting = starter.submit(theirs.ready)
        ours.ready()
        ours.run(rounds=WARM_UP_ROUNDS, elements=MB_ELEMENTS, limit_s=120.0)
        starting.result()
        return {
            megabytes: _compare(
                ours,
                theirs,
                rounds,
                elements=megabytes * MB_ELEMENTS,
                enough_s=QUICK_S - (time.monotonic() - begun) if quick else 600.0,
            )
            for megabytes, rounds in (QUICK_SIZES if quick else SIZES).items()
        }


def _compare(
    ours: Fedward, theirs: Flower, rounds: Rounds, *, elements: int, enough_s: float
) -> Compared:
    limits = Limits(enough_s=enough_s, fail_s=600.0)
    late_at = time.monotonic() + enough_s
    before = ours.run(rounds=rounds.fedward, elements=elements, limit_s=600.0)
    flowers = theirs.run(rounds=rounds.flower, elements=elements, limits=limits)
    if time.monotonic() > late_at:  # a busy machine: `--quick` stays quick
        return Compared([before], [flowers])
    after = ours.run(rounds=rounds.fedward, elements=elements, limit_s=600.0)
    return Compared([before, after], [flowers])


def _profile(folder: Path, target: Path, *, megabytes: int) -> None:
    elements = megabytes * MB_ELEMENTS
    recorders = Recorders(target.absolute())
    with fedward(folder, app=APP) as ours:
        ours.ready()
        ours.run(rounds=WARM_UP_ROUNDS, elements=elements, limit_s=120.0)
        pids = {"coordinator": ours.group.pid("coordinator")}
        for site in SITES:
            pids[site], *workers = ours.group.tree(site)
            pids |= {f"{site}-worker": pid for pid in workers}
        recorders.start(pids)
        rounds = PROFILED_ROUNDS if megabytes < 10 else 10
        times = ours.run(rounds=rounds, elements=elements, limit_s=600.0)
        summaries = recorders.finish()
    print(
        f"{times.rounds} rounds of {megabytes} MB, median {median_s([times]):.3f} s with py-spy on"
    )
    for name, cpu_s in times.cpu_s.items():
        print(f"  {name:12} {1000 * cpu_s / times.rounds:7.1f} ms CPU a round")
    for summary in summaries:
        print(summary)


def _show(found: dict[int, Compared]) -> None:
    print(f"One round of 3 sites that add 1. {machine()}")
    print(f"{'':24}{'rounds':>7}{'first s':>9}{'median s':>10}{'range s':>18}{'CPU s/round':>13}")
    for megabytes, both in found.items():
        for name, runs in (("flwr", both.flower), ("fedward", both.fedward)):
            steady = [second for run in runs for second in run.steady_s]
            span = f"{min(steady):.3f} to {max(steady):.3f}"
            cpu_s = sum(run.cpu_per_round_s for run in runs) / len(runs)
            print(
                f"{name + f', {megabytes} MB':24}{len(steady):7}{runs[0].first_s:9.2f}"
                f"{median_s(runs):10.3f}{span:>18}{cpu_s:13.3f}"
            )
        for run in both.fedward:
            parts = [f"{k} {1000 * v / run.rounds:.0f}" for k, v in run.cpu_s.items()]
            print(f"  fedward's CPU, ms a round: {', '.join(parts)}")
        print(f"  fedward is {both.ratio:.1f} times faster")


if __name__ == "__main__":
    main()
