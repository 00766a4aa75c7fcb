"""A site's rows: read from CSV or Parquet, checked, and split into training and held-out rows.

Only the named columns are read. Missing feature values stay NaN here (`standardising.py` puts
the federation's mean in their place); a missing target, a value that is no number and an
infinity are refused by file, column and row. Messages go to the site's own log; they name rows
and columns, never a feature's value.

Held-out rows are chosen within each class, by `split-seed` alone, so that they are the same
rows in every round as long as the file is the same.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedward.client.errors import TaskFailed
from fedward.client.recipes.tabular.settings import Settings
from fedward.protocol.documents import TaskFailure

CSV_SUFFIXES = (".csv", ".csv.gz", ".csv.zip")
PARQUET_SUFFIXES = (".parquet", ".pq")


@dataclass(frozen=True, slots=True)
class Rows:
    """Features float64 (n, d), NaN where missing; labels float32 (n,), 0 or 1."""

    features: NDArray[np.float64]
    labels: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Table:
    """The rows to train on and the rows held out; both in the file's order."""

    training: Rows
    held_out: Rows


class InvalidTable(TaskFailed):
    """The site's file cannot be used; the message names file, column and row."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(TaskFailure.DATASET_UNREADABLE, f"{path}: {reason}")


def load_table(path: Path, settings: Settings) -> Table:
    """Read and split the file; the last few are kept in memory until they change.

    Raises:
        InvalidTable: see the module's docstring.
    """
    try:
        found = path.stat()
    except OSError as error:
        raise InvalidTable(path, f"cannot be opened: {error.strerror}") from error
    return _load(path, settings, (found.st_mtime_ns, found.st_size, found.st_ino))


@lru_cache(maxsize=2)
def _load(path: Path, settings: Settings, _version: tuple[int, int, int]) -> Table:
    frame = _read(path, [*settings.features, settings.target])
    if frame.empty:
        raise InvalidTable(path, "has no rows")
    features = np.column_stack([_numbers(path, frame[name]) for name in settings.features])
    labels = _labels(path, frame[settings.target], positive=settings.positive)
    held_out = _held_out(labels, settings)
    if held_out.all():
        raise InvalidTable(path, f"{len(labels)} rows leave none to train on")
    return Table(
        training=Rows(features[~held_out], labels[~held_out]),
        held_out=Rows(features[held_out], labels[held_out]),
    )


def _read(path: Path, columns: list[str]) -> pd.DataFrame:
    try:
        if path.name.lower().endswith(CSV_SUFFIXES):
            _require_columns(path, columns, list(pd.read_csv(path, nrows=0).columns))
            return pd.read_csv(path, usecols=columns, low_memory=False)
        if path.name.lower().endswith(PARQUET_SUFFIXES):
            import pyarrow.parquet as pq

            _require_columns(path, columns, list(pq.read_schema(path).names))
            return pd.read_parquet(path, columns=columns)
    except OSError as error:
        raise InvalidTable(path, f"cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # pandas' and pyarrow's parsing errors are ValueErrors
        raise InvalidTable(path, f"is not a table that can be read: {error}") from error
    known = ", ".join(CSV_SUFFIXES + PARQUET_SUFFIXES)
    raise InvalidTable(path, f"got file name {path.name!r}, expected one that ends in {known}")


def _require_columns(path: Path, wanted: list[str], found: list[str]) -> None:
    missing = [name for name in wanted if name not in found]
    if not missing:
        return
    hints = []
    for name in missing:
        near = difflib.get_close_matches(name, found, n=1)
        hints.append(f"{name!r} (nearest: {near[0]!r})" if near else repr(name))
    shown = ", ".join(map(repr, found[:20])) + (" …" if len(found) > 20 else "")
    text = f"has no column {', '.join(hints)}; it has {len(found)}: {shown}"
    if len(found) == 1 and ";" in found[0]:
        text += "; columns must be separated by commas"
    raise InvalidTable(path, text)


def _numbers(path: Path, column: pd.Series[Any]) -> NDArray[np.float64]:
    if column.dtype.kind not in "biufO" and not isinstance(column.dtype, pd.StringDtype):
        # pandas would count dates in microseconds.
        raise InvalidTable(path, f"column {column.name!r}: got {column.dtype}, expected numbers")
    numbers = pd.to_numeric(column, errors="coerce")
    values = numbers.to_numpy(dtype=np.float64, na_value=np.nan)
    bad = np.isnan(values) & column.notna().to_numpy()
    if bad.any():
        raise InvalidTable(path, f"column {column.name!r}: {_where(bad)} no number")
    infinite = np.isinf(values)
    if infinite.any():
        raise InvalidTable(path, f"column {column.name!r}: {_where(infinite)} infinite")
    return values


def _labels(path: Path, column: pd.Series[Any], *, positive: str) -> NDArray[np.float32]:
    name = f"target {column.name!r}"
    missing = column.isna().to_numpy()
    if missing.any():
        raise InvalidTable(path, f"{name}: {_where(missing)} missing")
    codes, distinct = pd.factorize(column)
    texts = [_text(value) for value in distinct]
    kinds = sorted(set(texts))
    if not positive:
        if not set(kinds) <= {"0", "1"}:
            raise InvalidTable(
                path,
                f"{name}: got values {_some(kinds)}, expected 0 and 1 "
                "(or name the value that counts as 1 with the setting 'positive')",
            )
        positive = "1"
    if len(kinds) > 2 or (len(kinds) == 2 and _text(positive) not in kinds):
        raise InvalidTable(
            path,
            f"{name}: got values {_some(kinds)}, expected {positive!r} and one other "
            "(the target is binary)",
        )
    return np.array([text == _text(positive) for text in texts], dtype=np.float32)[codes]


def _text(value: object) -> str:
    """Return a label's canonical text: True, 1, 1.0 and "1" are the same label."""
    text = str(value).strip()
    if text in {"True", "False"}:
        return str(int(text == "True"))
    try:
        number = float(text)
    except ValueError:
        return text
    return str(int(number)) if number.is_integer() else str(number)


def _held_out(labels: NDArray[np.float32], settings: Settings) -> NDArray[np.bool_]:
    rng = np.random.default_rng(settings.split_seed)
    chosen = np.zeros(len(labels), dtype=np.bool_)
    for label in (0.0, 1.0):
        rows = np.flatnonzero(labels == label)
        count = int(len(rows) * settings.test_fraction + 0.5)
        chosen[rng.permutation(rows)[:count]] = True
    return chosen


def _where(bad: NDArray[np.bool_]) -> str:
    rows = np.flatnonzero(bad)
    first = f"row {rows[0] + 1}"
    return f"{first} is" if len(rows) == 1 else f"{first} and {len(rows) - 1} more are"


def _some(values: list[str]) -> str:
    shown = ", ".join(repr(value) for value in values[:5])
    return shown + (f" and {len(values) - 5} more" if len(values) > 5 else "")
