"""`fedward plan`: from a TOML file to a submitted plan."""

from pathlib import Path
from typing import Annotated, Any

import typer

from .commands import LocalCommand, OperatorCommand, group, session
from .errors import InvalidFile
from .identifiers import Digest

app = group(
    "Write, check and submit plans.",
    example="fedward plan init sepsis.toml --study sepsis --dataset icu",
)
PlanPath = Annotated[Path, typer.Argument(help="The plan file (TOML).")]
InitialModel = Annotated[
    str | None,
    typer.Option(help="First model: a safetensors file, pkg.task:Net, or a digest."),
]
AppDirectory = Annotated[
    Path, typer.Option(help="Where pkg of --initial pkg.task:Net lies.", file_okay=False)
]
COLUMNS = {
    "plan.name": "name",
    "plan.study": "study",
    "created": "submitted",
    "created_by": "by",
    "digest": "digest",
}


@app.command(cls=LocalCommand)
def init(
    ctx: typer.Context,
    file: PlanPath,
    study: Annotated[str, typer.Option(help="The study that the plan belongs to.")] = "my-study",
    dataset: Annotated[str, typer.Option(help="The data's name in agent.toml.")] = "my-data",
    bundle: Annotated[
        str | None, typer.Option(help="For an uploaded app: its digest, sha256:…")
    ] = None,
) -> None:
    """Write a plan file to fill in, for the recipe `tabular` or an uploaded app.

    Example: fedward plan init sepsis.toml --study sepsis --dataset icu
    """
    from .plan_template import write_template

    text = write_template(file, study=study, dataset=dataset, bundle=bundle)
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(text)
    except OSError as error:
        raise InvalidFile(f"{file}: {error.strerror}") from error
    done = "Fill in [app.config] and validate it." if bundle is None else "Fill it in, submit it."
    session(ctx).show_fields({"file": str(file)}, done=done)


@app.command(cls=OperatorCommand)
def validate(
    ctx: typer.Context,
    file: PlanPath,
    initial: InitialModel = None,
    app_dir: AppDirectory = Path(),
) -> None:
    """Check a plan: every reason for which it would be refused, and its bytes per round.

    The initial model is uploaded for the check (its schema belongs to it); no plan is stored.
    Exit code 1 when the plan would be refused.

    Example: fedward plan validate sepsis.toml
    """
    here = session(ctx)
    with here.api() as api:
        from .submission import prepare_plan

        plan = prepare_plan(api, file, initial=initial, directory=app_dir)
        check = api.post("/plans/validate", plan.model_dump(mode="json"))
    here.show_fields(check)
    if not check["accepted"]:
        raise typer.Exit(1)


@app.command(cls=OperatorCommand)
def submit(
    ctx: typer.Context,
    file: PlanPath,
    initial: InitialModel = None,
    app_dir: AppDirectory = Path(),
) -> None:
    """Upload the initial model and hand in the plan; prints its digest.

    Example: fedward plan submit digits.toml --initial digits.task:Net --app-dir digits-app
    """
    here = session(ctx)
    with here.api() as api:
        from .submission import prepare_plan

        plan = prepare_plan(api, file, initial=initial, directory=app_dir)
        view: dict[str, Any] = api.post("/plans", plan.model_dump(mode="json"))
    if here.as_json:
        here.show_fields(view)
    else:
        typer.echo(f"Submitted. Next: fedward run create {view['digest']} --start")


@app.command("list", cls=OperatorCommand)
def list_plans(ctx: typer.Context) -> None:
    """List the submitted plans.

    Example: fedward plan list
    """
    here = session(ctx)
    with here.api() as api:
        here.show_rows(api.get_all("/plans"), COLUMNS)


@app.command(cls=OperatorCommand)
def show(ctx: typer.Context, digest: Digest) -> None:
    """Show a submitted plan.

    Example: fedward plan show sha256:0a1b…
    """
    here = session(ctx)
    with here.api() as api:
        here.show_fields(api.get(f"/plans/{digest}"))
