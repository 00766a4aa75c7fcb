"""`fedward serve`: the coordinator."""

import os
from pathlib import Path
from typing import Annotated

import typer

from .commands import LocalCommand
from .errors import CliError

app = typer.Typer(add_completion=False)


@app.command(cls=LocalCommand)
def serve(
    *,
    data: Annotated[
        Path | None, typer.Option(help="Folder for the database, models and keys.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file with settings.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on. [127.0.0.1]")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on. [8470]")] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate chain (PEM).")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Private key (PEM).")] = None,
    behind_proxy: Annotated[
        bool | None, typer.Option("--behind-proxy", help="A proxy in front ends TLS.")
    ] = None,
) -> None:
    """Run the coordinator; the first start prints one admin token, once.

    Plain HTTP is served on loopback only; elsewhere give a certificate or --behind-proxy.
    Settings come from --config, FEDWARD_<KEY> variables and flags, the later one wins.

    Example: fedward serve --data coordinator-data
    """
    from fedward.coordinator.errors import CoordinatorError
    from fedward.coordinator.server import serve as run_server
    from fedward.coordinator.settings import load_settings

    flags = {
        "data": data,
        "host": host,
        "port": port,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
        "behind_proxy": behind_proxy,
    }
    try:
        run_server(load_settings(config, env=os.environ, flags=flags))
    except CoordinatorError as error:
        raise CliError(error.detail) from error
