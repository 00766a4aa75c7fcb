"""`fedward app`: the training code that plans name by digest."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from .bundle import write_bundle
from .commands import OperatorCommand, group, session
from .identifiers import Digest
from .transfers import upload_bundle

app = group(
    "Upload training code (a Flower app directory).",
    example="fedward app upload examples/flower-digits",
)
COLUMNS = {
    "name": "name",
    "version": "version",
    "clientapp": "clientapp",
    "size_bytes": "size",
    "digest": "digest",
}


@app.command(cls=OperatorCommand)
def upload(
    ctx: typer.Context,
    directory: Annotated[
        Path, typer.Argument(help="Folder with the app's pyproject.toml.", file_okay=False)
    ],
) -> None:
    """Zip a Flower app directory and upload it; the digest goes into plans and agent.toml.

    Code and settings are sent, other files (data, notebooks, pictures) are named and left out.

    Example: fedward app upload examples/flower-digits
    """
    here = session(ctx)
    with tempfile.TemporaryDirectory() as folder, here.api() as api:
        file = Path(folder) / "bundle.zip"
        files = write_bundle(directory, file)
        if files.left_out and not here.as_json:
            typer.echo("Not sent: " + ", ".join(map(str, files.left_out)), err=True)
        here.show_fields(upload_bundle(api, file))


@app.command("list", cls=OperatorCommand)
def list_apps(ctx: typer.Context) -> None:
    """List the uploaded apps.

    Example: fedward app list
    """
    here = session(ctx)
    with here.api() as api:
        here.show_rows(api.get_all("/apps"), COLUMNS)


@app.command(cls=OperatorCommand)
def show(ctx: typer.Context, digest: Digest) -> None:
    """Show one app: its files, settings and size.

    Example: fedward app show sha256:0a1b…
    """
    here = session(ctx)
    with here.api() as api:
        here.show_fields(api.get(f"/apps/{digest}"))
