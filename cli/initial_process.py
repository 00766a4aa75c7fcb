"""Makes a first model from the researcher's own code, in a process of its own.

`python -m fedward.cli.initial_process pkg.task:Net SEED TARGET DIRECTORY` imports `pkg.task`
with DIRECTORY first on the path, calls `Net()` (or takes it as it is), and writes the arrays:
a torch module's state_dict, a dict of name -> array, or a list of arrays in Flower's naming.
"""

import importlib
import random  # noqa: TID251  seeded for the researcher's code; nothing here draws from it
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedward.protocol.arrays import encode
from fedward.protocol.errors import InvalidArrays


def main() -> None:
    """Write the model, or end with code 1 and one line that says why."""
    call, seed, target, directory = sys.argv[1:]
    sys.path.insert(0, directory)
    try:
        parts = encode(_arrays_of(_evaluate(call, int(seed))))
    except (InvalidArrays, TypeError, AttributeError, ImportError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
    with Path(target).open("wb") as out:
        out.writelines(parts)


def _evaluate(call: str, seed: int) -> Any:
    module_name, _, name = call.partition(":")
    _seed(seed)
    found = getattr(importlib.import_module(module_name), name)
    _seed(seed)
    # A module's instance can be called, too (its forward pass): only what makes one is called.
    is_model = hasattr(found, "state_dict") and not isinstance(found, type)
    return found if is_model or not callable(found) else found()


def _seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002  the global state is what models draw from
    if "torch" in sys.modules:
        from fedward.client.training.determinism import seed_torch

        seed_torch(seed)


def _arrays_of(model: Any) -> dict[str, np.ndarray]:
    if hasattr(model, "state_dict"):
        from fedward.client.training.tensors import arrays_of

        return arrays_of(model)
    if isinstance(model, Mapping):
        return {str(name): np.asarray(array) for name, array in model.items()}
    if isinstance(model, Sequence) and not isinstance(model, str | bytes):
        return {str(index): np.asarray(array) for index, array in enumerate(model)}
    raise TypeError(
        f"got a {type(model).__name__}, expected a torch module, a dict or a list of arrays"
    )


if __name__ == "__main__":
    main()
