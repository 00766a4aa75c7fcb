"""Combines updates one at a time into their weighted mean.

There is one float64 accumulator, of the size of the averaged arrays, and one block of scratch
memory; no update is kept. Floating-point addition depends on the order: the caller adds in a
fixed one (by site name), so that the same updates give the same bits whenever they arrived.
What is believed of an update is decided before, at the gate (`gate.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedward.protocol.arrays import (
    BLOCK_ELEMENTS,
    Arrays,
    Schema,
    require_finite,
    require_schema,
    schema_of,
    update_schema,
)
from fedward.protocol.documents import ArrayClass
from fedward.protocol.errors import NonFinite
from fedward.strategies.base import Aggregate
from fedward.strategies.errors import NoData, Overflow, WeightInvalid


class Combiner:
    """The running sum of weighted updates of one attempt.

    Args:
        schema: of the model or of the update; local arrays are ignored.
        classes: the class of every array of `schema`.
        counted: `largest` takes the elementwise largest value of integer arrays, and true
            where any is true of boolean ones, over the updates that weigh something; `keep`
            leaves them out of the aggregate.
    """

    def __init__(
        self,
        schema: Schema,
        classes: Mapping[str, ArrayClass],
        *,
        counted: Literal["largest", "keep"],
    ) -> None:
        self._schema = update_schema(schema, classes)
        averaged = [s for s in self._schema if classes[s.name] is ArrayClass.AVERAGED]
        self._sums = {s.name: np.zeros(s.shape, np.float64) for s in averaged}
        self._takes_largest = counted == "largest"
        self._counted: dict[str, NDArray[Any]] = {}
        self._scratch = np.empty(
            min(BLOCK_ELEMENTS, max((s.elements for s in averaged), default=0)), np.float64
        )
        self._weight = 0.0
        self._updates = 0
        self._handed_out = False

    def add(self, update: Arrays, *, weight: float) -> None:
        """Add one update; of weight 0 it counts as an update and changes nothing else.

        Raises:
            WeightInvalid: `weight` is NaN, infinite or negative.
            SchemaMismatch: a name, dtype or shape differs. Nothing was added.
        """
        if self._handed_out:
            raise ValueError("the result has been taken: an update cannot be added any more")
        if not isfinite(weight) or weight < 0:
            raise WeightInvalid(f"weight: got {weight}, expected a finite number >= 0")
        require_schema(schema_of(update), self._schema)
        self._updates += 1
        self._weight += weight
        if weight == 0:
            return
        with np.errstate(over="ignore", invalid="ignore"):  # `result` looks at the sums
            for name, sums in self._sums.items():
                self._add_weighted(sums.reshape(-1), update[name], weight)
        if self._takes_largest:
            self._take_largest(update)

    def result(self) -> Aggregate:
        """Return the weighted mean and give the accumulator away; nothing can be added after.

        Raises:
            NoData: all weights are 0, or there was no update.
            Overflow: a sum is beyond float64.
        """
        if self._weight == 0:
            raise NoData(f"got {self._updates} updates of total weight 0, expected more than 0")
        self._handed_out = True
        for sums in self._sums.values():
            np.divide(sums, self._weight, out=sums)
        try:
            require_finite(self._sums)
        except NonFinite as error:
            raise Overflow(f"the weighted mean is beyond float64: {error}") from error
        return Aggregate(self._sums, self._counted, self._weight, self._updates)

    def _add_weighted(self, sums: NDArray[np.float64], update: NDArray[Any], weight: float) -> None:
        values = update.reshape(-1)
        for start in range(0, sums.size, BLOCK_ELEMENTS):
            part = sums[start : start + BLOCK_ELEMENTS]
            scratch = self._scratch[: part.size]
            scratch[...] = values[start : start + BLOCK_ELEMENTS]
            scratch *= weight
            part += scratch

    def _take_largest(self, update: Arrays) -> None:
        for spec in self._schema:
            if spec.name in self._sums:
                continue
            value = update[spec.name]
            so_far = self._counted.get(spec.name)
            if so_far is None:
                self._counted[spec.name] = value.copy()
            else:
                np.maximum(so_far, value, out=so_far)
