"""The same bits for the same seed: torch's algorithms, threads and generators."""

from __future__ import annotations

import torch


def fix_algorithms(*, threads: int) -> None:
    """Let torch use `threads` threads and algorithms that repeat their result.

    An operation that has none on the device only warns: an app that needs it still runs.
    """
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    # Filling fresh memory with NaN costs time and only finds faults in torch's own code.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # set by a module property
    torch.backends.cudnn.benchmark = False


def seed_torch(seed: int) -> None:
    """Seed torch's generators on all devices; `seed` in [0, 2**64)."""
    torch.manual_seed(seed)
