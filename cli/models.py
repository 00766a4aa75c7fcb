"""`fedward model`: model versions, where they come from, their files."""

from pathlib import Path
from typing import Annotated

import typer

from .commands import OperatorCommand, group, session
from .identifiers import RUN_ID, Digest
from .transfers import download_model, upload_model

app = group(
    "List, trace, upload and download model versions.",
    example="fedward model download sha256:0a1b… --out model.safetensors",
)
COLUMNS = {
    "run": "run",
    "round": "round",
    "parameters": "parameters",
    "size_bytes": "size",
    "created": "created",
    "digest": "digest",
}


@app.command("list", cls=OperatorCommand)
def list_models(
    ctx: typer.Context,
    run: Annotated[
        str | None,
        typer.Option(help="Only the versions of this run.", click_type=RUN_ID),
    ] = None,
) -> None:
    """List model versions, a run's by round, else the newest last.

    Example: fedward model list --run run-0k3f9a
    """
    here = session(ctx)
    with here.api() as api:
        found = api.get_all("/models", run=run)
    if run is None:
        found.sort(key=lambda model: str(model["created"]))
    else:
        found.sort(key=lambda model: -1 if model["round"] is None else model["round"])
    here.show_rows(found, COLUMNS)


@app.command(cls=OperatorCommand)
def show(ctx: typer.Context, digest: Digest) -> None:
    """Show one model version with the schema of its arrays.

    Example: fedward model show sha256:0a1b…
    """
    here = session(ctx)
    with here.api() as api:
        here.show_fields(api.get(f"/models/{digest}"))


@app.command(cls=OperatorCommand)
def lineage(ctx: typer.Context, digest: Digest) -> None:
    """List the versions that a model descends from, the newest first.

    Example: fedward model lineage sha256:0a1b…
    """
    here = session(ctx)
    with here.api() as api:
        here.show_rows(api.get(f"/models/{digest}/lineage"), COLUMNS)


@app.command(cls=OperatorCommand)
def download(
    ctx: typer.Context,
    digest: Digest,
    out: Annotated[Path, typer.Option("--out", "-o", help="The safetensors file to write.")],
) -> None:
    """Download a model version as a safetensors file and check its digest.

    A model of the recipe `tabular` expects standardised columns:
    (x - mean) / sqrt(mean_square - mean^2), 0 where a value is missing.
    `fedward run rounds RUN --round 0 --json` prints the two in full, as
    feature-mean and feature-mean-square; README.md has an example in Python.

    Example: fedward model download sha256:0a1b… --out model.safetensors
    """
    here = session(ctx)
    with here.api() as api:
        size_bytes = download_model(api, digest, out)
    here.show_fields({"digest": digest, "file": str(out), "size_bytes": size_bytes})


@app.command(cls=OperatorCommand)
def upload(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(help="A safetensors file.")],
) -> None:
    """Upload a model to start runs from.

    Example: fedward model upload start.safetensors
    """
    here = session(ctx)
    with here.api() as api:
        here.show_fields(upload_model(api, file))
