"""The top of the command tree: names and one-line helps; a sub-command's module loads on use.

`fedward --help` imports none of them, which keeps it quick; a test compares the lines here with
the modules.
"""

from importlib import import_module

import click
import typer
from typer.core import TyperCommand, TyperGroup

COMMANDS = {
    "serve": ("serve", "Run the coordinator."),
    "study": ("studies", "Why data is used, by whom, and until when."),
    "site": ("sites", "Invite, list and revoke the sites."),
    "agent": ("agent", "Enrol this site and run its agent."),
    "app": ("apps", "Upload training code (a Flower app directory)."),
    "plan": ("plans", "Write, check and submit plans."),
    "run": ("runs", "Create, start, watch and stop runs."),
    "model": ("models", "List, trace, upload and download model versions."),
    "audit": ("audit", "Read and verify the audit log."),
    "token": ("tokens", "API tokens of operators, researchers and auditors."),
    "demo": ("demo", "Three hospitals on this machine train one model."),
}
"""Sub-command -> its module in this package and its line in the listing."""
HIDDEN = frozenset({"demo"})


class LazyGroup(TyperGroup):
    """Lists `COMMANDS` from the table and imports a module when its command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        """Return the names in the order of the table."""
        return list(COMMANDS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002  click's signature
        cmd_name: str,
    ) -> click.Command | None:
        """Return a stand-in that carries the help line, enough for a listing."""
        if cmd_name not in COMMANDS:
            return None
        return TyperCommand(cmd_name, help=COMMANDS[cmd_name][1], hidden=cmd_name in HIDDEN)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Load the module of the command that is about to run."""
        name, stand_in, rest = super().resolve_command(ctx, args)
        if name is None or stand_in is None:
            return name, stand_in, rest
        return name, load_command(name), rest


def load_command(name: str) -> click.Command:
    """Import the module of a sub-command and return its command or group."""
    module = import_module(f"fedward.cli.{COMMANDS[name][0]}")
    command = typer.main.get_command(module.app)
    command.name = name
    return command


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def fedward() -> None:
    """Federated learning for organisations whose records may not move.

    Start a coordinator with `fedward serve`, join it with `fedward agent`,
    train with `fedward plan` and `fedward run`.
    Help shows an example: `fedward run -h`, `fedward run watch -h`.
    """
