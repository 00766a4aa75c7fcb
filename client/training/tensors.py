"""Tensors as named arrays and back; bfloat16 included, which neither numpy nor torch converts."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedward.protocol.arrays import BFLOAT16, Arrays


def array_from_tensor(tensor: torch.Tensor) -> NDArray[Any]:
    """Return a copy of `tensor` in host memory, with its dtype and shape.

    Raises:
        TypeError: numpy has no such dtype.
    """
    held = tensor.detach().to("cpu", copy=True)
    if held.dtype is torch.bfloat16:
        return held.contiguous().view(torch.int16).numpy().view(BFLOAT16)
    return held.resolve_conj().resolve_neg().numpy()


def tensor_from_array(array: NDArray[Any]) -> torch.Tensor:
    """Return a tensor on the CPU that shares `array`'s memory; `array` must be writable."""
    if array.dtype == BFLOAT16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def arrays_of(module: torch.nn.Module) -> dict[str, NDArray[Any]]:
    """Return a copy of the module's `state_dict`, in its order."""
    return {name: array_from_tensor(tensor) for name, tensor in module.state_dict().items()}


def load_arrays(module: torch.nn.Module, arrays: Arrays) -> None:
    """Copy `arrays` into the module's parameters and buffers.

    Raises:
        ValueError: names or shapes are not the module's; lists all that differ.
    """
    own = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    got = {name: tuple(array.shape) for name, array in arrays.items()}
    faults = [
        f"array {name!r}: got {got.get(name, 'none')}, expected {own.get(name, 'none')}"
        for name in own | got
        if own.get(name) != got.get(name)
    ]
    if faults:
        raise ValueError("; ".join(faults))
    module.load_state_dict(
        {name: tensor_from_array(np.array(array)) for name, array in arrays.items()}
    )
