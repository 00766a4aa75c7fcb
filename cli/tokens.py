"""`fedward token`: API tokens of operators, researchers and auditors."""

from typing import Annotated

import typer

from .commands import OperatorCommand, group, session
from .durations import parse_duration

app = group(
    "API tokens of operators, researchers and auditors.",
    example="fedward token create j.doe --role researcher --valid 30d",
)
COLUMNS = {
    "token": "id",
    "name": "name",
    "role": "role",
    "expires": "expires",
    "revoked": "revoked",
}


@app.command(cls=OperatorCommand)
def create(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Whose token it is, as the audit log will name it.")],
    role: Annotated[str, typer.Option(help="admin, operator, researcher or auditor.")],
    valid: Annotated[str, typer.Option(help="How long: 12h, 30d; at most 90d.")] = "30d",
) -> None:
    """Make a token; it is shown once, only its hash is kept.

    Example: fedward token create j.doe --role researcher --valid 30d
    """
    here = session(ctx)
    document = {"name": name, "role": role, "ttl_s": parse_duration(valid)}
    with here.api() as api:
        made = api.post("/tokens", document)
    if here.as_json:
        here.show_fields(made)
        return
    typer.echo(f"The API token, shown only this once:\n{made.pop('secret')}\n")
    here.show_fields(made, done="The secret is what FEDWARD_TOKEN takes. About it:")


@app.command("list", cls=OperatorCommand)
def list_tokens(ctx: typer.Context) -> None:
    """List the tokens, without their secrets.

    Example: fedward token list
    """
    here = session(ctx)
    with here.api() as api:
        here.show_rows(api.get_all("/tokens"), COLUMNS)


@app.command(cls=OperatorCommand)
def revoke(
    ctx: typer.Context, token_id: Annotated[str, typer.Argument(help="Id from `token list`.")]
) -> None:
    """Revoke a token at once.

    Example: fedward token revoke ID
    """
    here = session(ctx)
    with here.api() as api:
        here.show_fields(api.post(f"/tokens/{token_id}/revoke"), done=f"{token_id} is revoked.")
