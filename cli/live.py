"""A run's table on the screen while it grows; in a pipe, one line a finished round."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from .errors import CliError
from .output import format_value, make_table, print_json_line
from .watch import ENDED, Snapshot, round_columns, round_rows, summary_line

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS_ON_SCREEN = 30


def watch_run(snapshots: Iterable[Snapshot], *, as_json: bool) -> dict[str, Any]:
    """Show the snapshots as they come and return the last one's run.

    Raises:
        CliError: there was none.
    """
    last: dict[str, Any] | None = None
    with _display(as_json) as show:
        for snapshot in snapshots:
            show(snapshot)
            last = snapshot.run
    if last is None:
        raise CliError("the coordinator showed nothing of the run")
    return last


@contextmanager
def _display(as_json: bool) -> Iterator[Callable[[Snapshot], None]]:
    console = Console()
    if as_json:
        yield lambda snapshot: print_json_line(snapshot.run)
    elif console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            yield lambda snapshot: live.update(_table(snapshot), refresh=True)
    else:
        yield _RoundLines(console).show


def _table(snapshot: Snapshot) -> Group:
    shown = snapshot.rounds[-ROWS_ON_SCREEN:]
    table = make_table(round_rows(shown), round_columns(shown))
    return Group(table, Text(summary_line(snapshot.run)))


class _RoundLines:
    """Prints each round once, when it is finished."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._printed = 0

    def show(self, snapshot: Snapshot) -> None:
        ended = snapshot.run["status"] in ENDED
        finished = snapshot.rounds if ended else snapshot.rounds[:-1]
        rows, columns = round_rows(finished), round_columns(finished)
        for row in rows[self._printed :]:
            parts = [
                f"{heading} {format_value(key, row.get(key))}" for key, heading in columns.items()
            ]
            print("  ".join(parts), flush=True)
        self._printed = max(self._printed, len(rows))
        if ended:
            print(summary_line(snapshot.run), flush=True)
