"""The step from one model version to the next that all averaging strategies share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedward.protocol.arrays import BFLOAT16, BLOCK_ELEMENTS
from fedward.strategies.base import Aggregate
from fedward.strategies.errors import Overflow


def add_mean(model: dict[str, NDArray[Any]], aggregate: Aggregate) -> dict[str, NDArray[Any]]:
    """Return `model` with the mean differences added and the counted values replaced.

    The sum is formed in float64 and cast once. Arrays without part in the aggregate are
    passed on as they are. Order, dtypes and shapes are the model's.

    Raises:
        Overflow: a new value does not fit its array's dtype.
        ValueError: the aggregate is not of this model.
    """
    _check_fits(model, aggregate)
    return {
        name: _moved(name, base, aggregate.mean[name])
        if name in aggregate.mean
        else aggregate.counted.get(name, base)
        for name, base in model.items()
    }


def _check_fits(model: dict[str, NDArray[Any]], aggregate: Aggregate) -> None:
    for name, array in (aggregate.mean | aggregate.counted).items():
        if name not in model or model[name].shape != array.shape:
            expected = model[name].shape if name in model else "no such array"
            raise ValueError(f"aggregate of {name!r}: got shape {array.shape}, expected {expected}")


def _moved(name: str, base: NDArray[Any], mean: NDArray[np.float64]) -> NDArray[Any]:
    moved = np.empty(base.shape, base.dtype)
    out, values, steps = moved.reshape(-1), base.reshape(-1), mean.reshape(-1)
    bad = 0
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        for start in range(0, out.size, BLOCK_ELEMENTS):
            block = slice(start, start + BLOCK_ELEMENTS)
            wide = values[block].astype(np.float64)
            wide += steps[block]
            out[block] = _float32_to_odd(wide) if base.dtype == BFLOAT16 else wide
            bad += int(out[block].size) - int(np.count_nonzero(np.isfinite(out[block])))
    if bad:
        raise Overflow(f"array {name!r}: {bad} of {out.size} new values do not fit {base.dtype}")
    return moved


def _float32_to_odd(wide: NDArray[np.float64]) -> NDArray[np.float32]:
    """Round to float32 "to odd", so that the cast to bfloat16 that follows is correct.

    ml_dtypes casts float64 to bfloat16 by way of float32; rounding to nearest twice moves
    values just beside a tie by one unit. Truncating first and setting the last bit where that
    was inexact does not (Boldo and Melquiond, 2008, "Emulation of FMA and correctly rounded
    sums: proved algorithms using rounding to odd").
    """
    near = wide.astype(np.float32)
    bits = near.view(np.uint32)
    inexact = near != wide
    np.subtract(bits, np.abs(near) > np.abs(wide), out=bits)  # sign and size are apart in IEEE 754
    np.bitwise_or(bits, inexact, out=bits)
    return near
