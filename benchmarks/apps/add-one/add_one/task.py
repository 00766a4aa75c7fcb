"""The model: float32 zeros in a few arrays."""

import numpy as np

ARRAYS = 4


def initial_arrays(elements: int) -> dict[str, np.ndarray]:
    """Return `ARRAYS` float32 arrays with `elements` numbers together."""
    part = elements // ARRAYS
    sizes = [part] * (ARRAYS - 1) + [elements - part * (ARRAYS - 1)]
    return {f"layer{i}.weight": np.zeros(size, np.float32) for i, size in enumerate(sizes)}
