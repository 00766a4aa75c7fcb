"""Federated means and mean squares: what a site reports, and how features are scaled with them.

A missing value counts, in a site's report, as the site's own mean of the column, and is replaced
by the federation's mean before training: 0 after scaling. A column of one value everywhere is
only shifted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedward.client.errors import TaskFailed
from fedward.client.recipes.tabular.settings import Settings
from fedward.client.recipes.tabular.table import InvalidTable, Rows
from fedward.protocol.documents import TaskFailure

MEAN = "feature-mean"
MEAN_SQUARE = "feature-mean-square"
PREPARED = "prepared."
"""The coordinator's prefix for the federation's mean of a query's metric."""
SMALLEST_RELATIVE_VARIANCE = 1e-12
"""Below this share of the mean square, a variance is rounding error of float64, not spread."""


@dataclass(frozen=True, slots=True)
class Scale:
    """What a feature is shifted by and divided by; float64 (d,), `deviation` > 0."""

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]


def site_statistics(rows: Rows, *, settings: Settings, path: Path) -> dict[str, Any]:
    """Return the metrics of the `statistics` query, over the training rows.

    Raises:
        InvalidTable: a column has no value in any training row.
    """
    present = ~np.isnan(rows.features)
    counts = present.sum(axis=0)
    for name, count in zip(settings.features, counts, strict=True):
        if not count:
            raise InvalidTable(path, f"column {name!r}: every training row is missing")
    filled = np.where(present, rows.features, 0.0)
    return {
        "num-examples": len(rows.labels),
        MEAN: (filled.sum(axis=0) / counts).tolist(),
        MEAN_SQUARE: ((filled * filled).sum(axis=0) / counts).tolist(),
    }


def scale_from(config: Mapping[str, Any], *, features: int) -> Scale:
    """Return the scale from a message's config, `prepared.feature-mean` and `…-mean-square`.

    Raises:
        TaskFailed: plan-invalid; they are missing or not one number per feature.
    """
    mean = _vector(config, MEAN, features)
    square = _vector(config, MEAN_SQUARE, features)
    variance = square - mean * mean
    spread = variance > SMALLEST_RELATIVE_VARIANCE * square
    return Scale(mean, np.where(spread, np.sqrt(np.where(spread, variance, 1.0)), 1.0))


def standardise(features: NDArray[np.float64], scale: Scale) -> NDArray[np.float32]:
    """Return scaled features, float32 (n, d), with 0 where a value is missing."""
    scaled = (features - scale.mean) / scale.deviation
    return np.nan_to_num(scaled, nan=0.0).astype(np.float32)


def _vector(config: Mapping[str, Any], name: str, features: int) -> NDArray[np.float64]:
    value = config.get(PREPARED + name)
    if not isinstance(value, list) or len(value) != features:
        got = "none" if value is None else f"{np.size(value)} values"
        raise TaskFailed(
            TaskFailure.PLAN_INVALID,
            f"{PREPARED + name}: got {got}, expected {features} "
            "(the plan must say prepare = 'statistics')",
        )
    return np.asarray(value, dtype=np.float64)
