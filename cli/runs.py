"""`fedward run`: create, start, watch, pause and stop runs."""

from typing import Annotated, Any

import typer

from .commands import OperatorCommand, Session, group, session
from .errors import RunNotCompleted
from .identifiers import DIGEST, Run
from .watch import follow_run, round_columns, round_rows, summary_line

app = group(
    "Create, start, watch and stop runs.",
    example="fedward run watch run-0k3f9a",
)
COLUMNS = {
    "run": "run",
    "name": "plan",
    "study": "study",
    "status": "status",
    "round": "round",
    "rounds": "of",
    "participation": "now",
}


@app.command(cls=OperatorCommand)
def create(
    ctx: typer.Context,
    plan: Annotated[
        str,
        typer.Argument(help="The plan's digest: sha256:…", click_type=DIGEST),
    ],
    start: Annotated[bool, typer.Option("--start", help="Start it at once.")] = False,
) -> None:
    """Create a run of a submitted plan.

    Example: fedward run create sha256:0a1b… --start
    """
    here = session(ctx)
    with here.api() as api:
        view: dict[str, Any] = api.post("/runs", {"plan": plan})
        if start:
            view = api.post(f"/runs/{view['run']}/start")
    if here.as_json:
        here.show_fields(view)
    elif start:
        typer.echo(f"{view['run']} is started. Next: fedward run watch {view['run']}")
    else:
        typer.echo(f"{view['run']} is created. Next: fedward run start {view['run']}")


@app.command(cls=OperatorCommand)
def start(ctx: typer.Context, run: Run) -> None:
    """Start a run; it waits until a quorum of its sites is enrolled.

    Example: fedward run start run-0k3f9a
    """
    _change(session(ctx), run, "start")


@app.command(cls=OperatorCommand)
def pause(ctx: typer.Context, run: Run) -> None:
    """Hand out no more work; what is out may come back.

    Example: fedward run pause run-0k3f9a
    """
    _change(session(ctx), run, "pause")


@app.command(cls=OperatorCommand)
def resume(ctx: typer.Context, run: Run) -> None:
    """Go on with a paused run.

    Example: fedward run resume run-0k3f9a
    """
    _change(session(ctx), run, "resume")


@app.command(cls=OperatorCommand)
def stop(ctx: typer.Context, run: Run) -> None:
    """End a run for good; its models stay.

    Example: fedward run stop run-0k3f9a
    """
    _change(session(ctx), run, "stop")


@app.command("list", cls=OperatorCommand)
def list_runs(ctx: typer.Context) -> None:
    """List the runs.

    Example: fedward run list
    """
    here = session(ctx)
    with here.api() as api:
        here.show_rows(api.get_all("/runs"), COLUMNS)


@app.command(cls=OperatorCommand)
def show(ctx: typer.Context, run: Run) -> None:
    """Show where a run stands: who took part, who is waited for and why.

    Example: fedward run show run-0k3f9a
    """
    here = session(ctx)
    with here.api() as api:
        here.show_fields(api.get(f"/runs/{run}"))


@app.command(cls=OperatorCommand)
def rounds(
    ctx: typer.Context,
    run: Run,
    number: Annotated[int | None, typer.Option("--round", help="Show this round alone.")] = None,
) -> None:
    """List a run's rounds, or show one: cohort, refused updates with reasons, metrics, digests.

    Example: fedward run rounds run-0k3f9a --round 3
    """
    here = session(ctx)
    with here.api() as api:
        if number is not None:
            here.show_fields(api.get(f"/runs/{run}/rounds/{number}"))
            return
        found = api.get_all(f"/runs/{run}/rounds")
    if here.as_json:
        here.show_rows(found, {})
    else:
        here.show_rows(round_rows(found), round_columns(found))


@app.command(cls=OperatorCommand)
def watch(ctx: typer.Context, run: Run) -> None:
    """Follow a run to its end: a live table, or with --json one line for each change.

    Exit code 1 when the run fails or is stopped.

    Example: fedward run watch run-0k3f9a
    """
    from .live import watch_run

    here = session(ctx)
    with here.api() as api:
        last = watch_run(follow_run(api, run), as_json=here.as_json)
    if last["status"] != "completed":
        raise RunNotCompleted(summary_line(last))
    if not here.as_json:
        typer.echo(f"Final model:\n{last['model']}")


def _change(here: Session, run: str, call: str) -> None:
    with here.api() as api:
        view = api.post(f"/runs/{run}/{call}")
    here.show_fields(view)
