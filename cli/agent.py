"""`fedward agent`: the site's side. Enrols once, then runs and asks for work."""

from pathlib import Path
from typing import Annotated

import typer

from .commands import LocalCommand, group, session

app = group(
    "Enrol this site and run its agent.",
    example="fedward agent enrol https://fl.example.org --invite fwi_… --config agent.toml",
)
Config = Annotated[Path, typer.Option(help="The site's settings.", dir_okay=False)]
DEFAULT_CONFIG = Path("agent.toml")


@app.command(cls=LocalCommand)
def enrol(
    ctx: typer.Context,
    url: Annotated[str, typer.Argument(help="The coordinator's address.")],
    *,
    invite: Annotated[
        str, typer.Option(help="The invite from the coordinator.", envvar="FEDWARD_INVITE")
    ],
    config: Config = DEFAULT_CONFIG,
    state: Annotated[
        Path, typer.Option(help="State folder of a new agent.toml.", file_okay=False)
    ] = Path("agent-state"),
) -> None:
    """Join a federation: make this site's key, prove it, remember the coordinator's.

    Writes agent.toml where there is none. Where there is one, its state
    folder and network settings (proxy, ca_file) are used.

    Example: fedward agent enrol https://fl.example.org --invite fwi_…
    """
    from .enrolment import join_federation

    joined = join_federation(url, invite, config=config, state=state)
    session(ctx).show_fields(
        joined,
        done="Enrolled. Compare key_id with the coordinator's `fedward site show`, "
        f"name your data in {config}, then: fedward agent run --config {config}",
    )


@app.command(cls=LocalCommand)
def run(config: Config = DEFAULT_CONFIG) -> None:
    """Ask for work and do it until stopped (Ctrl-C); reconnects for ever.

    Example: fedward agent run --config agent.toml
    """
    from .enrolment import run_agent

    run_agent(config)


@app.command(cls=LocalCommand)
def status(ctx: typer.Context, config: Config = DEFAULT_CONFIG) -> None:
    """Show this site's membership and verify its own audit log.

    Example: fedward agent status --config agent.toml
    """
    from .enrolment import agent_status

    session(ctx).show_fields(agent_status(config))
