"""The demo's data: scikit-learn's breast-cancer rows, split by tumour size among three hospitals.

Every hospital sees another range of sizes, so that none of them could learn the whole. The rows
that nobody trains on are drawn from all sizes beforehand, the same share of both classes.
"""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .errors import CliError

TARGET = "malignant"
SIZE_COLUMN = "mean radius"
HELD_OUT_SHARE = 0.2
SEED = 0


@dataclass(frozen=True, slots=True)
class DemoData:
    """Where the files lie, and what is in them; `sizes` are the (smallest, largest) radius."""

    sites: dict[str, Path]
    held_out: Path
    features: tuple[str, ...]
    rows: dict[str, int]
    sizes: dict[str, tuple[float, float]]
    malignant: dict[str, float]


def write_demo_data(folder: Path, names: tuple[str, ...]) -> DemoData:
    """Write one CSV file for each hospital into its own folder, and one of held-out rows.

    Raises:
        CliError: scikit-learn is not installed.
    """
    features, values, labels = _load()
    held_out = _held_out(labels)
    sizes = values[:, features.index(SIZE_COLUMN)]
    order = np.flatnonzero(~held_out)
    parts = np.array_split(order[np.argsort(sizes[order], kind="stable")], len(names))
    files = {}
    for name, rows in zip(names, parts, strict=True):
        files[name] = folder / name / "patients.csv"
        _write(files[name], features, values[np.sort(rows)], labels[np.sort(rows)])
    shared = folder / "held-out.csv"
    _write(shared, features, values[held_out], labels[held_out])
    by_name = dict(zip(names, parts, strict=True))
    return DemoData(
        sites=files,
        held_out=shared,
        features=features,
        rows={name: len(rows) for name, rows in by_name.items()},
        sizes={n: (float(sizes[r].min()), float(sizes[r].max())) for n, r in by_name.items()},
        malignant={name: float(labels[rows].mean()) for name, rows in by_name.items()},
    )


def _load() -> tuple[tuple[str, ...], NDArray[np.float64], NDArray[np.int64]]:
    try:
        from sklearn.datasets import load_breast_cancer
    except ImportError as error:
        raise CliError("the demo needs scikit-learn: pip install scikit-learn") from error
    data = load_breast_cancer()
    features = tuple(str(name) for name in data.feature_names)
    # scikit-learn's target is 1 for benign.
    return features, np.asarray(data.data, dtype=np.float64), 1 - np.asarray(data.target)


def _held_out(labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    rng = np.random.default_rng(SEED)
    chosen = np.zeros(len(labels), dtype=np.bool_)
    for label in (0, 1):
        rows = rng.permutation(np.flatnonzero(labels == label))
        chosen[rows[: round(len(rows) * HELD_OUT_SHARE)]] = True
    return chosen


def _write(
    file: Path,
    features: tuple[str, ...],
    values: NDArray[np.float64],
    labels: NDArray[np.int64],
) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow([*features, TARGET])
        for row, label in zip(values.tolist(), labels.tolist(), strict=True):
            writer.writerow([*row, label])
