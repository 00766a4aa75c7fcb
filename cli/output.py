"""How results look: tables and key/value lines for people, JSON for scripts."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.\d{6}Z")
ITEM_WIDTH = 78
"""A list's item that is longer is written over several lines."""
LONGEST_WORD = 40
"""A column of single words up to this length, as ids are, is never folded."""
UNITS = ("B", "kB", "MB", "GB", "TB")


def print_json(value: object, *, stream: IO[str] | None = None) -> None:
    """Print one value as indented JSON."""
    print(json.dumps(value, indent=2, ensure_ascii=False), file=stream or sys.stdout)


def print_json_line(value: object) -> None:
    """Print one value as one line of JSON, at once."""
    print(json.dumps(value, ensure_ascii=False), flush=True)


def print_table(rows: list[dict[str, Any]], columns: Mapping[str, str]) -> None:
    """Print rows; `columns` maps a row's (dotted) key to the heading.

    On a terminal that is too narrow for them, digests stand below their row, to be copied whole.
    """
    from rich.console import Console

    if not rows:
        print("none")
        return
    console = Console(soft_wrap=False)
    if not console.is_terminal:
        # A pipe has no width to fit: cut nothing off.
        console = Console(width=400)
    table = make_table(rows, columns)
    digests = [key for key in columns if any(_is_digest(value_at(row, key)) for row in rows)]
    unlimited = console.options.update(max_width=10 * ITEM_WIDTH * len(columns))
    if not digests or console.measure(table, options=unlimited).maximum <= console.width:
        console.print(table)
    else:
        _print_ids_below(console, rows, columns, below=digests)


def make_table(
    rows: list[dict[str, Any]], columns: Mapping[str, str], *, spacing: int = 0
) -> Table:
    """Return a table without ornaments that a person can also cut with awk.

    `spacing` empty lines follow each row.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for key, heading in columns.items():
        given = [found for row in rows if (found := value_at(row, key)) is not None]
        numeric = bool(given) and all(_is_number(value) for value in given)
        cells = [_format_cell(key, value_at(row, key)) for row in rows]
        table.add_column(
            heading,
            justify="right" if numeric else "left",
            overflow="fold",
            no_wrap=all(" " not in cell and len(cell) <= LONGEST_WORD for cell in cells),
        )
    for row in rows:
        # Text: a value with square brackets is not markup.
        table.add_row(*(Text(_format_cell(key, value_at(row, key))) for key in columns))
        for _ in range(spacing):
            table.add_row()
    return table


def make_one_line_table(rows: list[dict[str, Any]], columns: Mapping[str, str]) -> Table:
    """Return a table that cuts what does not fit, so that each row is one line."""
    table = make_table(rows, columns)
    for column in table.columns:
        column.overflow = "ellipsis"
        for cell in column.cells:
            cell.no_wrap = True  # type: ignore[union-attr]  # make_table's cells are Texts
    return table


def _print_ids_below(
    console: Console, rows: list[dict[str, Any]], columns: Mapping[str, str], *, below: list[str]
) -> None:
    beside = {key: heading for key, heading in columns.items() if key not in below}
    ids = iter([format_value(key, value_at(row, key)) for row in rows for key in below])
    with console.capture() as captured:
        console.print(make_table(rows, beside, spacing=len(below)))
    for line in captured.get().splitlines():
        # The empty lines are the ones that were left for the ids.
        print(line.rstrip() or f"  {next(ids)}")


def print_fields(
    document: Mapping[str, Any], *, indent: str = "", first: str | None = None
) -> None:
    """Print a document, one `key: value` a line, nested ones indented; `first` line's indent."""
    start = indent if first is None else first
    for key, value in document.items():
        if isinstance(value, Mapping) and value:
            print(f"{start}{key}:")
            print_fields(value, indent=indent + "  ")
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            print(f"{start}{key}:")
            for item in value:
                _print_item(item, indent=indent + "  ")
        else:
            line = f"{start}{key}: {format_value(key, value)}"
            if _is_digest(value) and len(line) > ITEM_WIDTH + 2:
                line = f"{start}{key}:\n{indent}  {value}"  # whole on one line, to be copied
            print(line)
        start = indent


def _print_item(item: Mapping[str, Any], *, indent: str) -> None:
    """Print a list's item on one line where it fits, else as a block without its empty fields."""
    line = ", ".join(f"{name} {format_value(name, value)}" for name, value in item.items())
    if len(indent) + 2 + len(line) <= ITEM_WIDTH:
        print(f"{indent}- {line}")
        return
    present = {name: value for name, value in item.items() if value not in (None, [], {})}
    print_fields(present, indent=indent + "  ", first=f"{indent}- ")


def value_at(row: Mapping[str, Any], key: str) -> Any:
    """Return the value at a dotted key (`plan.name`), None where there is none."""
    found: Any = row
    for part in key.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def format_value(key: str, value: object) -> str:
    """Write a value for a person; a key with `bytes` in it holds a size."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and ("bytes" in key):
        return format_bytes(value)
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return ", ".join(format_value(key, item) for item in value) or "-"
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {format_value(k, v)}" for k, v in value.items()) or "-"
    return str(value)


def _format_cell(key: str, value: object) -> str:
    """Write a value for a table, a time to the second."""
    return _TIME.sub(r"\1Z", format_value(key, value))


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and DIGEST.fullmatch(value) is not None


def format_bytes(size_bytes: float) -> str:
    """Write a size with three digits: `1.23 MB` (powers of 1000)."""
    size = float(size_bytes)
    for unit in UNITS:
        if size < 1000 or unit == UNITS[-1]:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.3g} {unit}"
        size /= 1000
    raise ValueError(f"a size in bytes is a finite number, got {size_bytes}")


@contextmanager
def transfer_progress(title: str, total_bytes: int | None) -> Iterator[Callable[[int], None]]:
    """Show a bar on standard error while bytes move, if that is a terminal.

    Yields:
        What to call with the number of bytes that have moved since the last call.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(title, total=total_bytes)
        yield lambda moved: progress.advance(task, moved)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
