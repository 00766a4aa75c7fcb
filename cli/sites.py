"""`fedward site`: who may join, who has joined, who is out."""

from typing import Annotated

import typer

from .commands import OperatorCommand, group, session
from .durations import parse_duration

app = group(
    "Invite, list and revoke the sites.",
    example='fedward site invite st-anna --organisation "St. Anna Hospital"',
)
Site = Annotated[str, typer.Argument(help="Name of the site.")]
COLUMNS = {
    "site": "site",
    "organisation": "organisation",
    "status": "status",
    "last_seen": "last seen",
    "agent_version": "agent",
}


@app.command(cls=OperatorCommand)
def invite(
    ctx: typer.Context,
    site: Site,
    organisation: Annotated[str, typer.Option(help="The organisation's full name.")],
    valid: Annotated[str, typer.Option(help="How long it may be used: 30m, 72h, 7d.")] = "72h",
) -> None:
    """Make an invite for a site; it is shown once and can be used once.

    Example: fedward site invite st-anna --organisation "St. Anna Hospital"
    """
    here = session(ctx)
    with here.api() as api:
        invitation = api.post(
            "/sites/invite",
            {"site": site, "organisation": organisation, "ttl_s": parse_duration(valid)},
        )
    here.show_fields(
        invitation, done="Hand this to the site by a channel you trust; it is not shown again."
    )


@app.command("list", cls=OperatorCommand)
def list_sites(ctx: typer.Context) -> None:
    """List the sites: invited, enrolled, revoked, and when each was last seen.

    Example: fedward site list
    """
    here = session(ctx)
    with here.api() as api:
        here.show_rows(api.get_all("/sites"), COLUMNS)


@app.command(cls=OperatorCommand)
def show(ctx: typer.Context, site: Site) -> None:
    """Show one site with its key's fingerprint.

    Example: fedward site show st-anna
    """
    here = session(ctx)
    with here.api() as api:
        here.show_fields(api.get(f"/sites/{site}"))


@app.command(cls=OperatorCommand)
def revoke(ctx: typer.Context, site: Site) -> None:
    """Shut a site out at once; its next request is refused.

    Example: fedward site revoke st-anna
    """
    here = session(ctx)
    with here.api() as api:
        here.show_fields(api.post(f"/sites/{site}/revoke"), done=f"{site} is revoked.")
