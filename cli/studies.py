"""`fedward study`: why data is used, by whom it may be used, and until when."""

from typing import Annotated

import typer

from .commands import OperatorCommand, group, session
from .durations import parse_end_of_day

app = group(
    "Why data is used, by whom, and until when.",
    example="fedward study list",
)
StudyName = Annotated[str, typer.Argument(help="Name: lower case, digits, hyphens.")]
COLUMNS = {
    "study.study": "study",
    "status": "status",
    "study.sites": "sites",
    "study.expires": "expires",
}


@app.command(cls=OperatorCommand)
def create(
    ctx: typer.Context,
    study: StudyName,
    *,
    purpose: Annotated[str, typer.Option(help="What the data is used for.")],
    legal_basis: Annotated[str, typer.Option(help="Under which law or consent.")],
    site: Annotated[list[str], typer.Option(help="A site that may take part; repeat it.")],
    expires: Annotated[str, typer.Option(help="Last day, as 2027-12-31 (UTC).")],
) -> None:
    """Create a study.

    Example: fedward study create sepsis --purpose "early warning"
    --legal-basis "ethics vote 12/2026" --site st-anna --site charlotte --expires 2027-12-31
    """
    here = session(ctx)
    document = {
        "study": study,
        "purpose": purpose,
        "legal_basis": legal_basis,
        "sites": site,
        "expires": parse_end_of_day(expires),
    }
    with here.api() as api:
        created = api.post("/studies", document)
        known = {entry["site"] for entry in api.get_all("/sites")}
    for name in dict.fromkeys(site):
        if name not in known:
            typer.echo(
                f"warning: no site {name} is known yet: fedward site invite {name}", err=True
            )
    here.show_fields(created, done=f"Study {study} is open.")


@app.command("list", cls=OperatorCommand)
def list_studies(ctx: typer.Context) -> None:
    """List the studies.

    Example: fedward study list
    """
    here = session(ctx)
    with here.api() as api:
        here.show_rows(api.get_all("/studies"), COLUMNS)


@app.command(cls=OperatorCommand)
def show(ctx: typer.Context, study: StudyName) -> None:
    """Show one study.

    Example: fedward study show sepsis
    """
    here = session(ctx)
    with here.api() as api:
        here.show_fields(api.get(f"/studies/{study}"))


@app.command(cls=OperatorCommand)
def close(ctx: typer.Context, study: StudyName) -> None:
    """Close a study for good: no run of it starts any more.

    Example: fedward study close sepsis
    """
    here = session(ctx)
    with here.api() as api:
        here.show_fields(api.post(f"/studies/{study}/close"), done=f"Study {study} is closed.")
