"""The slots of the optimisers: float64 arrays named `<kind>/<array>`, in the array's shape.

A slot that is absent is zero: the classes of the arrays are the aggregate's to say, and no slot
exists before the first one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedward.protocol.arrays import require_finite
from fedward.protocol.errors import NonFinite
from fedward.strategies.base import ServerState
from fedward.strategies.errors import Overflow


def read_slot(
    state: ServerState, kind: str, array: str, *, shape: tuple[int, ...]
) -> NDArray[np.float64]:
    """Return a slot, or zeros where there is none yet; not to be modified.

    Raises:
        ValueError: the state holds it in another dtype or shape.
    """
    name = f"{kind}/{array}"
    slot: NDArray[Any] | None = state.slots.get(name)
    if slot is None:
        return np.zeros(shape, np.float64)
    if slot.dtype != np.float64 or slot.shape != shape:
        raise ValueError(f"slot {name!r}: got {slot.dtype} {slot.shape}, expected float64 {shape}")
    return slot


def require_finite_slots(slots: Mapping[str, NDArray[np.float64]]) -> None:
    """Check that the optimiser can go on from `slots`.

    Raises:
        Overflow: a value is beyond float64; names the slots and counts the values.
    """
    try:
        require_finite(slots)
    except NonFinite as error:
        raise Overflow(f"the optimiser's state is beyond float64: {error}") from error
