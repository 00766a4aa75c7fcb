"""Local training: stochastic gradient descent, with FedProx's pull towards the received model.

The step is `torch.optim.SGD`'s to the bit (a test compares them), written out because making
the first optimiser imports 800 modules and takes 1.6 s, as long as loading torch does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Mean loss of outputs against targets."""


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """How a site trains; `batch_size` 0 takes all rows at once.

    `proximal_mu` is FedProx's mu >= 0 (Li et al. 2020, MLSys): mu/2 times the squared distance
    to the received parameters is added to the loss.
    """

    epochs: int
    batch_size: int
    learning_rate: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    proximal_mu: float = 0.0


def train_epochs(
    module: torch.nn.Module,
    inputs: torch.Tensor,
    targets: torch.Tensor,
    *,
    loss: Loss,
    settings: TrainingSettings,
) -> float:
    """Train `module` in place and return the mean loss over the last epoch's rows.

    Args:
        inputs: shape (n, ...), n >= 1, on the module's device.
        targets: shape (n, ...), on the module's device.
        loss: the mean over a batch.

    The order of rows is drawn from torch's global generator on the CPU, so that it depends on
    the seed and not on the device.
    """
    rows = len(inputs)
    size = settings.batch_size or rows
    step = _Descent(module, settings)
    total = torch.zeros((), dtype=torch.float64)
    module.train()
    for _ in range(settings.epochs):
        order = torch.randperm(rows) if size < rows else torch.arange(rows)
        total = torch.zeros((), dtype=torch.float64)
        for batch in order.to(inputs.device).split(size):  # type: ignore[no-untyped-call]  # torch
            module.zero_grad()
            value = loss(module(inputs[batch]), targets[batch])
            value.backward()  # type: ignore[no-untyped-call]  # torch
            step()
            total += value.detach().cpu().double() * len(batch)
    return float(total) / rows


class _Descent:
    """One step of SGD per call, from the gradients at hand."""

    def __init__(self, module: torch.nn.Module, settings: TrainingSettings) -> None:
        self._parameters = [p for p in module.parameters() if p.requires_grad]
        self._received = [p.detach().clone() for p in self._parameters]
        self._buffers: list[torch.Tensor | None] = [None] * len(self._parameters)
        self._settings = settings

    @torch.no_grad()
    def __call__(self) -> None:
        settings = self._settings
        for index, parameter in enumerate(self._parameters):
            direction = parameter.grad
            if direction is None:
                continue
            if settings.proximal_mu:
                distance = parameter - self._received[index]
                direction = direction.add(distance, alpha=settings.proximal_mu)
            if settings.weight_decay:
                direction = direction.add(parameter, alpha=settings.weight_decay)
            if settings.momentum:
                direction = self._with_momentum(index, direction)
            parameter.add_(direction, alpha=-settings.learning_rate)

    def _with_momentum(self, index: int, direction: torch.Tensor) -> torch.Tensor:
        buffer = self._buffers[index]
        if buffer is None:
            buffer = self._buffers[index] = direction.clone()
        else:
            buffer.mul_(self._settings.momentum).add_(direction)
        return buffer
