"""How results look: tables and key/value lines for people, JSON for scripts."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

UNITS = ("B", "kB", "MB", "GB", "TB")


def print_json(value: object, *, stream: IO[str] | None = None) -> None:
    """Print one value as indented JSON."""
    print(json.dumps(value, indent=2, ensure_ascii=False), file=stream or sys.stdout)


def print_json_line(value: object) -> None:
    """Print one value as one line of JSON, at once."""
    print(json.dumps(value, ensure_ascii=False), flush=True)


def print_table(rows: list[dict[str, Any]], columns: Mapping[str, str]) -> None:
    """Print rows; `columns` maps a row's (dotted) key to the heading."""
    from rich.console import Console

    if not rows:
        print("none")
        return
    console = Console(soft_wrap=False)
    if not console.is_terminal:
        # A pipe has no width to fit: cut nothing off.
        console = Console(width=400)
    console.print(make_table(rows, columns))


def make_table(rows: list[dict[str, Any]], columns: Mapping[str, str]) -> Table:
    """Return a table without ornaments that a person can also cut with awk."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for key, heading in columns.items():
        numeric = all(_is_number(value_at(row, key)) for row in rows)
        table.add_column(heading, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        # Text: a value with square brackets is not markup.
        table.add_row(*(Text(format_value(key, value_at(row, key))) for key in columns))
    return table


def print_fields(document: Mapping[str, Any], *, indent: str = "") -> None:
    """Print a document, one `key: value` a line, nested ones indented."""
    for key, value in document.items():
        if isinstance(value, Mapping) and value:
            print(f"{indent}{key}:")
            print_fields(value, indent=indent + "  ")
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            print(f"{indent}{key}:")
            for item in value:
                line = ", ".join(f"{name} {format_value(name, v)}" for name, v in item.items())
                print(f"{indent}  - {line}")
        else:
            print(f"{indent}{key}: {format_value(key, value)}")


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
