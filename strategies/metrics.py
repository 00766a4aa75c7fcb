"""Combines the metrics of several sites into one set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum, isfinite

from fedward.protocol.documents import MetricValue

NUM_EXAMPLES = "num-examples"
"""The metric by which replies are weighted; it is summed."""


def average_metrics(
    replies: Sequence[tuple[float, Mapping[str, MetricValue]]],
) -> dict[str, MetricValue]:
    """Return the weighted means of the metrics that every reply has, sorted by name.

    A metric counts where every reply has it as a number, or as a list of the same length, and
    all values are finite in float64; others are left out. `num-examples` is summed instead.
    Means are left out where all weights are 0. The order of the replies makes no difference.

    Args:
        replies: weight (finite, >= 0) and metrics of each site.
    """
    weights = [weight for weight, _ in replies]
    total = fsum(weights)
    combined: dict[str, MetricValue] = {}
    for name in sorted(_shared(replies)):
        rows = [metrics[name] for _, metrics in replies]
        if name == NUM_EXAMPLES:
            combined |= _summed(rows)
        elif total > 0:
            combined |= _mean(name, rows, [weight / total for weight in weights])
    return combined


def _shared(replies: Sequence[tuple[float, Mapping[str, MetricValue]]]) -> set[str]:
    return set.intersection(*(set(metrics) for _, metrics in replies)) if replies else set()


def _summed(rows: list[MetricValue]) -> dict[str, MetricValue]:
    numbers = [row for row in rows if not isinstance(row, list)]
    if len(numbers) != len(rows):
        return {}
    try:
        whole = all(isinstance(number, int) for number in numbers)
        total = int(sum(numbers)) if whole else fsum(numbers)
        return {NUM_EXAMPLES: total} if isfinite(total) else {}
    except (OverflowError, ValueError):  # beyond float64, or infinities of both signs
        return {}


def _mean(name: str, rows: list[MetricValue], shares: list[float]) -> dict[str, MetricValue]:
    columns = [_numbers(row) for row in rows]
    shapes = {
        (isinstance(row, list), len(column or ()))
        for row, column in zip(rows, columns, strict=True)
    }
    if None in columns or len(shapes) != 1:
        return {}
    try:
        means = [
            _weighted_mean(values, shares)
            for values in zip(*(column or () for column in columns), strict=True)
        ]
    except OverflowError:  # on the way: the shares add up to 1 but for rounding
        return {}
    return {name: means if isinstance(rows[0], list) else means[0]}


def _weighted_mean(values: Sequence[float], shares: list[float]) -> float:
    """Return the mean, kept between the least and the largest value in spite of rounding."""
    mean = fsum(share * value for share, value in zip(shares, values, strict=True))
    return min(max(mean, min(values)), max(values))


def _numbers(row: MetricValue) -> list[float] | None:
    """Return the values as floats, or None where one is not finite or beyond float64."""
    try:
        values = [float(value) for value in (row if isinstance(row, list) else [row])]
    except OverflowError:
        return None
    return values if all(isfinite(value) for value in values) else None
