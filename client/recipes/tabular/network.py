"""The recipe's model in torch, and its training and scoring on a site's rows."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from numpy.typing import NDArray
from torch import nn

from fedward.client.errors import TaskFailed
from fedward.client.recipes.tabular.scoring import score
from fedward.client.recipes.tabular.settings import Settings
from fedward.client.recipes.tabular.standardising import Scale, standardise
from fedward.client.recipes.tabular.table import Rows
from fedward.client.training.loops import TrainingSettings, train_epochs
from fedward.client.training.tensors import arrays_of, load_arrays
from fedward.protocol.arrays import Arrays
from fedward.protocol.documents import TaskFailure


class TabularNetwork(nn.Module):
    """Linear layers with ReLU between them and one logit at the end."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Linear(inputs, outputs) for inputs, outputs in pairwise(widths)
        )

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return logits (n,) for features (n, d)."""
        hidden = features
        for layer in self.layers[:-1]:
            hidden = torch.relu(layer(hidden))
        logits: torch.Tensor = self.layers[-1](hidden).squeeze(1)
        return logits


def fit(
    arrays: Arrays,
    rows: Rows,
    *,
    settings: Settings,
    scale: Scale,
    proximal_mu: float,
    device: torch.device,
) -> tuple[dict[str, NDArray[Any]], float]:
    """Train from `arrays` on `rows`; the order of batches comes from torch's seed.

    Returns:
        The trained arrays, and the mean loss over the last epoch.

    Raises:
        TaskFailed: model-invalid; the arrays are not this network's.
    """
    network = _network(arrays, settings, device)
    loss = train_epochs(
        network,
        torch.from_numpy(standardise(rows.features, scale)).to(device),
        torch.from_numpy(rows.labels).to(device),
        loss=nn.functional.binary_cross_entropy_with_logits,
        settings=TrainingSettings(
            epochs=settings.epochs,
            batch_size=settings.batch_size,
            learning_rate=settings.learning_rate,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
            proximal_mu=proximal_mu,
        ),
    )
    return arrays_of(network), loss


def evaluate(
    arrays: Arrays, rows: Rows, *, settings: Settings, scale: Scale, device: torch.device
) -> dict[str, float]:
    """Return loss, accuracy and, where both classes occur, auc on `rows`.

    Raises:
        TaskFailed: model-invalid; the arrays are not this network's.
    """
    network = _network(arrays, settings, device)
    with torch.no_grad():
        logits = network(torch.from_numpy(standardise(rows.features, scale)).to(device))
    return score(logits.cpu().numpy(), rows.labels)


def _network(arrays: Arrays, settings: Settings, device: torch.device) -> TabularNetwork:
    network = TabularNetwork(settings.widths)
    try:
        load_arrays(network, arrays)
    except ValueError as error:
        raise TaskFailed(
            TaskFailure.MODEL_INVALID, f"model and settings differ: {error}"
        ) from error
    return network.to(device)
