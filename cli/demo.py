"""`fedward demo`: a coordinator and three hospitals on this machine train one model together.

Uses what a user has: the command line's own sub-commands as processes, the operator routes,
the recipe `tabular`. Everything that it starts ends with it; its folder stays to be looked at.
"""

import time
from pathlib import Path
from typing import Annotated

import typer

from .commands import LocalCommand

app = typer.Typer(add_completion=False)


@app.command(cls=LocalCommand)
def demo(
    folder: Annotated[Path, typer.Option(help="Where everything is written.")] = Path("demo-run"),
    rounds: Annotated[int, typer.Option(min=1, max=1000, help="Rounds of FedAvg.")] = 20,
) -> None:
    """Three hospitals on this machine train one model; about 40 seconds on two idle cores.

    The last line is one JSON object.

    Example: fedward demo --folder demo-run
    """
    started = time.monotonic()
    from .demo_run import run_demo

    run_demo(folder, rounds=rounds, started=started)
