"""Arguments that are ids: what is certainly none is refused before the coordinator is asked."""

import re
from typing import Annotated

import click
import typer


class IdentifierType(click.ParamType):  # type: ignore[type-arg]  # older clicks have none
    """A text of one form; `expected` says it in words."""

    def __init__(self, name: str, *, form: str, expected: str) -> None:
        self.name = name
        self._form = re.compile(form)
        self._expected = expected

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text.

        Raises:
            click.BadParameter: it has another form.
        """
        if self._form.fullmatch(value) is None:
            self.fail(f"got {value!r}, expected {self._expected}", param, ctx)
        return value


RUN_ID = IdentifierType(
    "run",
    form=r"run-[0-9a-z]{6,40}",
    expected="an id such as run-01m8q987gmd01qrtfvv4t0gqmr (see `fedward run list`)",
)
DIGEST = IdentifierType(
    "digest",
    form=r"sha256:[0-9a-f]{64}",
    expected="a digest: sha256: and 64 hex digits in lower case",
)
Run = Annotated[str, typer.Argument(help="Id of the run: run-…", click_type=RUN_ID)]
Digest = Annotated[str, typer.Argument(help="Digest: sha256:…", click_type=DIGEST)]
