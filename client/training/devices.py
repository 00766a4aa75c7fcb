"""Which device trains: cuda before mps before cpu, or the one that the site asks for."""

from __future__ import annotations

import torch

from fedward.client.errors import TaskFailed
from fedward.protocol.documents import TaskFailure


def choose_device(requested: str) -> torch.device:
    """Return the device for "auto", "cpu", "mps", "cuda" or "cuda:N".

    Raises:
        TaskFailed: resources; torch has no such device here.
    """
    if requested == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(requested)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        # torch built without CUDA answers with an AssertionError.
        raise TaskFailed(
            TaskFailure.RESOURCES, f"device {requested!r} cannot be used here: {error}"
        ) from error
    return device
