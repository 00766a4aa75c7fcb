"""What every sub-command shares: `--json`, the options of a connection, errors in plain words.

A command is declared with `cls=OperatorCommand` (talks to a coordinator) or `cls=LocalCommand`
and takes the session from its context: `session(ctx)`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import typer
from typer.core import TyperCommand

from . import output
from .errors import CliError, InvalidFile, SettingMissing

if TYPE_CHECKING:
    from .http import Api

DEFAULT_URL = "http://127.0.0.1:8470"


@dataclass(frozen=True, slots=True)
class Session:
    """How this call talks to the coordinator and prints."""

    as_json: bool
    url: str = DEFAULT_URL
    token: str | None = None

    def api(self) -> Api:
        """Open a connection; use it in a `with` block.

        Raises:
            SettingMissing: no token was given.
        """
        from .http import Api

        if self.token is None:
            raise SettingMissing(
                "no API token: set FEDWARD_TOKEN or FEDWARD_TOKEN_FILE, or give --token-file "
                "(the first `fedward serve` prints an admin token)"
            )
        return Api(self.url, self.token)

    def show_rows(self, rows: list[dict[str, Any]], columns: dict[str, str]) -> None:
        """Print rows as a table with these columns (key -> heading), or as JSON."""
        if self.as_json:
            output.print_json(rows)
        else:
            output.print_table(rows, columns)

    def show_fields(self, document: dict[str, Any], *, done: str | None = None) -> None:
        """Print a document as key and value lines under a sentence `done`, or as JSON."""
        if self.as_json:
            output.print_json(document)
            return
        if done is not None:
            typer.echo(done)
        output.print_fields(document)


class LocalCommand(TyperCommand):
    """A command with `--json` whose CliErrors become a message and exit code 1."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(self.shared_options())

    def shared_options(self) -> list[click.Parameter]:
        """Return the options that every command of this class has."""
        return [click.Option(["--json", "as_json"], is_flag=True, help="Print JSON.")]

    def open_session(self, ctx: click.Context) -> Session:
        """Take the shared options out of the command's arguments."""
        return Session(as_json=ctx.params.pop("as_json"))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        as_json = bool(ctx.params.get("as_json"))
        try:
            ctx.obj = self.open_session(ctx)
            return super().invoke(ctx)
        except CliError as error:
            report_error(error, as_json=as_json)
            raise typer.Exit(1) from error


class OperatorCommand(LocalCommand):
    """A command that talks to a coordinator as an operator."""

    def shared_options(self) -> list[click.Parameter]:
        """Return `--json` and the options of the connection."""
        url = click.Option(
            ["--url"],
            envvar="FEDWARD_URL",
            default=DEFAULT_URL,
            show_default=True,
            show_envvar=True,
            help="The coordinator's address.",
        )
        token = click.Option(
            ["--token"],
            envvar="FEDWARD_TOKEN",
            show_envvar=True,
            help="API token; other users of this machine can see it here, prefer the variable.",
        )
        token_file = click.Option(
            ["--token-file"],
            envvar="FEDWARD_TOKEN_FILE",
            show_envvar=True,
            type=click.Path(dir_okay=False, path_type=Path),
            help="File that holds the API token.",
        )
        return [url, token, token_file, *super().shared_options()]

    def open_session(self, ctx: click.Context) -> Session:
        """Take the shared options out of the command's arguments."""
        as_json, url = ctx.params.pop("as_json"), ctx.params.pop("url")
        token, token_file = ctx.params.pop("token"), ctx.params.pop("token_file")
        if token is not None and not token.strip():
            raise click.UsageError("--token (FEDWARD_TOKEN): it is empty, expected an API token")
        if token is None and token_file is not None:
            token = read_token(token_file)
        return Session(as_json=as_json, url=url.rstrip("/"), token=token)


def group(help_text: str, *, example: str) -> typer.Typer:
    """Make the group of a sub-command; its help shows the example, its commands have their own."""
    return typer.Typer(
        help=f"{help_text}\n\nExample: {example}",
        no_args_is_help=True,
        add_completion=False,  # the options of `fedward` itself install it
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def session(ctx: typer.Context) -> Session:
    """Return the session that the command was called with."""
    found: Session = ctx.obj
    return found


def read_token(path: Path) -> str:
    """Read a token file: the token and perhaps a line end.

    Raises:
        InvalidFile: it cannot be read or is empty.
    """
    try:
        token = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise InvalidFile(f"token file {path}: {error.strerror}") from error
    if not token:
        raise InvalidFile(f"token file {path}: it is empty, expected one API token")
    return token


def report_error(error: CliError, *, as_json: bool) -> None:
    """Print an error where scripts and people look for it: standard error."""
    if as_json:
        output.print_json(error.document(), stream=sys.stderr)
    else:
        typer.secho(f"fedward: {error}", err=True)
