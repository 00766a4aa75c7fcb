"""The first model: the recipe's arrays, made without torch."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import sqrt

import numpy as np

from fedward.client.recipes.tabular.settings import Settings, parse_settings
from fedward.protocol.arrays import Arrays
from fedward.protocol.documents import Scalar


def initial_arrays(config: Mapping[str, Scalar], seed: int) -> Arrays:
    """Return `layers.N.weight` (out, in) and `layers.N.bias` (out,), float32.

    Logistic regression starts at zero; an MLP uniformly within 1/sqrt(in), torch's own choice
    for linear layers. The same settings and seed give the same bits.

    Raises:
        InvalidTabularSettings: the settings cannot be used.
    """
    return _layers(parse_settings(config), np.random.default_rng(seed))


def _layers(settings: Settings, rng: np.random.Generator) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    for index, (inputs, outputs) in enumerate(pairwise(settings.widths)):
        bound = 1.0 / sqrt(inputs) if settings.hidden else 0.0
        weight = rng.uniform(-bound, bound, size=(outputs, inputs))
        bias = rng.uniform(-bound, bound, size=outputs)
        arrays[f"layers.{index}.weight"] = weight.astype(np.float32)
        arrays[f"layers.{index}.bias"] = bias.astype(np.float32)
    return arrays
