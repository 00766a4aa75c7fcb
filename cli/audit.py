"""`fedward audit`: read the audit log and check it on this machine."""

from typing import Annotated

import typer

from .audit_check import check_inclusion
from .commands import OperatorCommand, group, session
from .errors import CliError
from .identifiers import RUN_ID

app = group(
    "Read and verify the audit log.",
    example="fedward audit verify",
)
COLUMNS = {
    "seq": "seq",
    "record.ts": "time",
    "record.actor.id": "actor",
    "record.action": "action",
    "record.outcome": "outcome",
    "record.object.id": "object",
    "record.reason": "reason",
}


@app.command(cls=OperatorCommand)
def events(
    ctx: typer.Context,
    run: Annotated[
        str | None,
        typer.Option(help="Only the records of this run.", click_type=RUN_ID),
    ] = None,
    after: Annotated[int, typer.Option(help="Start after this sequence number.")] = 0,
    limit: Annotated[int, typer.Option(help="At most so many.")] = 200,
) -> None:
    """List audit records; the read is itself recorded. Needs an auditor's token.

    Example: fedward audit events --run run-0k3f9a --limit 50
    """
    here = session(ctx)
    with here.api() as api:
        found = api.get_all("/audit/events", limit=limit, start=str(after), run=run)
        here.show_rows(found, COLUMNS)


@app.command(cls=OperatorCommand)
def verify(ctx: typer.Context) -> None:
    """Have the coordinator recompute its whole log, and check the newest record's proof here.

    Exit code 1 when the log does not fit its tree; the first bad record is named.

    Example: fedward audit verify
    """
    here = session(ctx)
    with here.api() as api:
        check = api.get("/audit/verify")
        if check["ok"] and check["size"]:
            proof = api.get("/audit/proof", seq=check["size"], size=check["size"])
            check_inclusion(proof, seq=check["size"], root=check["root"])
    here.show_fields(check)
    if not check["ok"]:
        raise CliError(f"record {check['first_bad_seq']}: {check['problem']}")


@app.command(cls=OperatorCommand)
def proof(
    ctx: typer.Context,
    seq: Annotated[int, typer.Argument(help="Sequence number of a record.")],
    size: Annotated[int | None, typer.Option(help="Of the tree of this size.")] = None,
) -> None:
    """Fetch the proof that a record is in the log, and check it on this machine.

    Example: fedward audit proof 12
    """
    here = session(ctx)
    with here.api() as api:
        found = api.get("/audit/proof", seq=seq, size=size)
    check_inclusion(found, seq=seq, root=found["root"])
    here.show_fields(found, done="The proof holds for this root:")
