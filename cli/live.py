"""A run's table on the screen while it grows; in a pipe, one line a finished round.

On a screen the newest rounds and the line that says where the run stands are always visible,
whatever its height. In a pipe a round's line keeps its columns: metrics come last, and those of
the first evaluated round are the ones of all later lines.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from .errors import CliError
from .output import format_value, make_one_line_table, print_json_line
from .watch import ENDED, METRIC, Snapshot, round_columns, round_rows, summary_line

if TYPE_CHECKING:
    from collections.abc import Callable

LEAST_ROWS = 3
LINES_AFTER = 5
"""What follows an ended run's table: the summary, the final model's digest, a prompt, folded."""


def watch_run(snapshots: Iterable[Snapshot], *, as_json: bool) -> dict[str, Any]:
    """Show the snapshots as they come and return the last one's run.

    A completed run's summary is printed; another end is the caller's to tell.

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
    if last["status"] == "completed" and not as_json:
        print(summary_line(last), flush=True)
    return last


@contextmanager
def _display(as_json: bool) -> Iterator[Callable[[Snapshot], None]]:
    console = Console()
    if as_json:
        yield _print_json
    elif console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            yield lambda snapshot: live.update(_Screen(snapshot), refresh=True)
    else:
        yield _RoundLines().show


def _print_json(snapshot: Snapshot) -> None:
    if snapshot.away is None:
        print_json_line(snapshot.run)


class _Screen:
    """As many of the newest rounds as the terminal has lines for, above the summary."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Fit the lines into the terminal as it is now."""
        below = [] if _has_ended(self._snapshot) else [Text(summary_line(self._snapshot.run))]
        if self._snapshot.away is not None:
            below.append(Text(_away_line(self._snapshot)))
        below_lines = sum(len(console.render_lines(text, options)) for text in below)
        # The headings, and a line for the cursor.
        room = console.size.height - 2 - (below_lines or LINES_AFTER)
        shown = self._snapshot.rounds[-max(LEAST_ROWS, room) :]
        yield make_one_line_table(round_rows(shown), round_columns(shown))
        yield from below


class _RoundLines:
    """Prints each round once, when it is finished."""

    def __init__(self) -> None:
        self._printed = 0
        self._metrics: dict[str, str] = {}
        self._away = False

    def show(self, snapshot: Snapshot) -> None:
        """Print what is new in a snapshot."""
        if snapshot.away is not None and not self._away:
            print(_away_line(snapshot), file=sys.stderr, flush=True)
        self._away = snapshot.away is not None
        finished = snapshot.rounds if _has_ended(snapshot) else snapshot.rounds[:-1]
        for view in finished[self._printed :]:
            (row,) = round_rows([view])
            print(self._line(row, round_columns([view])), flush=True)
        self._printed = max(self._printed, len(finished))

    def _line(self, row: dict[str, Any], columns: dict[str, str]) -> str:
        metrics = {key: name for key, name in columns.items() if key.startswith(METRIC)}
        self._metrics = self._metrics or metrics
        fixed = {key: name for key, name in columns.items() if key not in metrics}
        shown = {**fixed, "refused": "not taken", **self._metrics}
        return "  ".join(
            f"{heading} {format_value(key, row.get(key)) or '-'}" for key, heading in shown.items()
        )


def _has_ended(snapshot: Snapshot) -> bool:
    return snapshot.run["status"] in ENDED


def _away_line(snapshot: Snapshot) -> str:
    return f"the coordinator is away, trying again ({snapshot.away})"
