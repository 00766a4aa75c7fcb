"""Works on a run in a folder until it has ended or is killed; prints its status and model.

Usage: killed_process.py FOLDER RUN
"""

import sys
from pathlib import Path

from federation import (  # type: ignore[import-not-found]  # beside this script, when it runs
    Federation,
    simulated,
)

from fedward.coordinator.clock import system_clock
from fedward.coordinator.scheduler import run_due


def main(folder: str, run: str) -> None:
    federation = Federation(Path(folder), salt=str(system_clock()))
    sites = simulated(federation)
    print("started", flush=True)
    while federation.coordinator.show_run(run).status == "running":
        for site in sites.values():
            site.work()
        run_due(federation.coordinator.context)
    shown = federation.coordinator.show_run(run)
    print(shown.status, shown.model, flush=True)
    federation.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
