"""Hides GPUs from code that picks its device by itself; works without torch."""

from __future__ import annotations

from collections.abc import MutableMapping


def restrict_devices(requested: str, environment: MutableMapping[str, str]) -> str:
    """Leave only the requested device visible, and return its name from now on.

    Unmodified apps say `torch.device("cuda:0" if torch.cuda.is_available() else "cpu")`. This
    must run before torch looks for GPUs. "cuda:1" counts in the list that is visible already.

    Args:
        requested: "auto", "cpu", "mps", "cuda" or "cuda:N"; "auto" leaves all visible.
        environment: the process's environment; CUDA_VISIBLE_DEVICES in it is changed.
    """
    if requested in {"cpu", "mps"}:
        environment["CUDA_VISIBLE_DEVICES"] = ""
        return requested
    if not requested.startswith("cuda:"):
        return requested
    index = int(requested.removeprefix("cuda:"))
    visible = [part for part in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if part]
    if not visible:
        environment["CUDA_VISIBLE_DEVICES"] = str(index)
    elif index < len(visible):
        environment["CUDA_VISIBLE_DEVICES"] = visible[index]
    else:
        return requested
    return "cuda"
