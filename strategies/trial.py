"""A small model, nodes, and the replies of a few rounds, to try a foreign strategy out on.

The replies lie unevenly and weigh differently, so that medians, selections, trimmed and plain
means all differ from the weighted mean.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedward.protocol.arrays import Arrays

Reply = tuple[Arrays, float]

SITES = 7
ROUNDS = 3
MODEL: dict[str, NDArray[np.float64]] = {
    "layer.weight": np.array([[0.5, -0.25, 1.0], [0.0, 0.75, -1.5]]),
    "layer.bias": np.array([0.125, -0.5, 0.25]),
    "scale": np.array(0.5),
}


def replies(model: Arrays, number: int) -> list[Reply]:
    """Return what the sites trained in round `number`, and how many examples each has."""
    return [
        (
            {
                name: np.asarray(values + 0.1 * 1.7**site / number + 0.05 * np.cos(site + values))
                for name, values in model.items()
            },
            float(10 + 3 * site * site),
        )
        for site in range(SITES)
    ]


def mean_of(given: list[Reply]) -> Reply:
    """Return the weighted mean of replies, with the sum of their weights."""
    weights = [weight for _, weight in given]
    names = given[0][0]
    return {
        name: np.asarray(np.average([a[name] for a, _ in given], axis=0, weights=weights))
        for name in names
    }, sum(weights)


class Nodes:
    """Nodes to choose from: twice as many at each call, so that who waits for some gets them."""

    def __init__(self, count: int) -> None:
        self._count = count

    def get_node_ids(self) -> list[int]:
        """Return the ids."""
        nodes = list(range(1, self._count + 1))
        self._count *= 2
        return nodes
