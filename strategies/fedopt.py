"""FedAdam, FedAdagrad and FedYogi (Reddi et al., ICLR 2021, "Adaptive Federated Optimization").

All three take the step of the paper's Algorithm 2. With d the mean difference of an array:

    m <- beta_1 * m + (1 - beta_1) * d
    v <- v + d^2                                        FedAdagrad
    v <- v - (1 - beta_2) * d^2 * sign(v - d^2)         FedYogi
    v <- beta_2 * v + (1 - beta_2) * d^2                FedAdam
    w <- w + learning_rate * m / (sqrt(v) + tau)

m and v are float64 slots, 0 before the first round. The paper's analysis starts v at tau^2 or
above; Flower starts it at 0, and so does fedward.

Beside Flower's strategies of the same names (`eta` is `learning-rate` here):
- FedYogi takes the same steps; FedAdagrad does with beta_1 = 0, the only value that Flower has.
- Flower's FedAdam multiplies the rate of round t = 1, 2, ... by
  sqrt(1 - beta_2^(t + 1)) / (1 - beta_1^(t + 1)), which is not in Algorithm 2 (and one round
  ahead of Kingma and Ba, 2015, section 2). `bias_correction="flower"` does so too. t counts the
  versions made; Flower counts rounds that failed as well.
- Flower computes in the arrays' own dtypes and steps integer arrays as well. Here only averaged
  arrays are stepped, in float64, rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedward.protocol.arrays import BLOCK_ELEMENTS, Arrays
from fedward.protocol.documents import Scalar
from fedward.strategies.base import Aggregate, ServerState
from fedward.strategies.slots import read_slot, require_finite_slots
from fedward.strategies.steps import add_mean

LEARNING_RATE = "learning-rate"
BETA_1 = "beta-1"
BETA_2 = "beta-2"
TAU = "tau"
BIAS_CORRECTION = "bias-correction"
BIAS_CORRECTIONS = ("none", "flower")
_FIRST, _SECOND = "m", "v"

Values = NDArray[np.float64]
SecondMoment = Callable[[Values, Values], Values]
"""The next v of v and d^2."""


@dataclass(frozen=True, slots=True)
class FedAdam:
    """Adam on the server.

    `learning_rate` >= 0, `beta_1` and `beta_2` in [0, 1), `tau` > 0.
    """

    learning_rate: float = 0.1
    beta_1: float = 0.9
    beta_2: float = 0.99
    tau: float = 1e-3
    bias_correction: Literal["none", "flower"] = "none"
    name: str = "fedadam"

    @property
    def parameters(self) -> Mapping[str, Scalar]:
        """`learning-rate`, `beta-1`, `beta-2`, `tau` and `bias-correction`."""
        return {
            LEARNING_RATE: self.learning_rate,
            BETA_1: self.beta_1,
            BETA_2: self.beta_2,
            TAU: self.tau,
            BIAS_CORRECTION: self.bias_correction,
        }

    def init(self, model: Arrays) -> ServerState:
        """Return version 0 of `model`; the moments are 0."""
        return ServerState(version=0, model=dict(model), slots={})

    def apply(self, state: ServerState, aggregate: Aggregate) -> ServerState:
        """Return the next version.

        Raises:
            Overflow: a new value does not fit its array's dtype, or a slot float64.
        """
        beta_1, beta_2 = self.beta_1, self.beta_2
        rate = self.learning_rate
        if self.bias_correction == "flower":
            ahead = state.version + 2  # Flower's rounds count from 1, and it adds 1
            rate *= sqrt(1 - beta_2**ahead) / (1 - beta_1**ahead)
        step = _Step(rate, beta_1, self.tau, lambda v, d2: beta_2 * v + (1 - beta_2) * d2)
        return step.applied(state, aggregate)

    def client_config(self) -> dict[str, Scalar]:
        """Return nothing: the app trains as it likes."""
        return {}


@dataclass(frozen=True, slots=True)
class FedYogi:
    """Yogi on the server: v moves towards d^2 by an amount that d^2 alone says.

    `learning_rate` >= 0, `beta_1` and `beta_2` in [0, 1), `tau` > 0.
    """

    learning_rate: float = 0.01
    beta_1: float = 0.9
    beta_2: float = 0.99
    tau: float = 1e-3
    name: str = "fedyogi"

    @property
    def parameters(self) -> Mapping[str, Scalar]:
        """`learning-rate`, `beta-1`, `beta-2` and `tau`."""
        return {
            LEARNING_RATE: self.learning_rate,
            BETA_1: self.beta_1,
            BETA_2: self.beta_2,
            TAU: self.tau,
        }

    def init(self, model: Arrays) -> ServerState:
        """Return version 0 of `model`; the moments are 0."""
        return ServerState(version=0, model=dict(model), slots={})

    def apply(self, state: ServerState, aggregate: Aggregate) -> ServerState:
        """Return the next version.

        Raises:
            Overflow: a new value does not fit its array's dtype, or a slot float64.
        """
        share = 1 - self.beta_2
        step = _Step(
            self.learning_rate,
            self.beta_1,
            self.tau,
            lambda v, d2: v - share * d2 * np.sign(v - d2),
        )
        return step.applied(state, aggregate)

    def client_config(self) -> dict[str, Scalar]:
        """Return nothing: the app trains as it likes."""
        return {}


@dataclass(frozen=True, slots=True)
class FedAdagrad:
    """Adagrad on the server: v is the sum of all d^2.

    `learning_rate` >= 0, `beta_1` in [0, 1), `tau` > 0.
    """

    learning_rate: float = 0.1
    beta_1: float = 0.0
    tau: float = 1e-3
    name: str = "fedadagrad"

    @property
    def parameters(self) -> Mapping[str, Scalar]:
        """`learning-rate`, `beta-1` and `tau`."""
        return {LEARNING_RATE: self.learning_rate, BETA_1: self.beta_1, TAU: self.tau}

    def init(self, model: Arrays) -> ServerState:
        """Return version 0 of `model`; the moments are 0."""
        return ServerState(version=0, model=dict(model), slots={})

    def apply(self, state: ServerState, aggregate: Aggregate) -> ServerState:
        """Return the next version.

        Raises:
            Overflow: a new value does not fit its array's dtype, or a slot float64.
        """
        step = _Step(self.learning_rate, self.beta_1, self.tau, lambda v, d2: v + d2)
        return step.applied(state, aggregate)

    def client_config(self) -> dict[str, Scalar]:
        """Return nothing: the app trains as it likes."""
        return {}


@dataclass(frozen=True, slots=True)
class _Step:
    """One step of Algorithm 2."""

    rate: float
    beta_1: float
    tau: float
    second_moment: SecondMoment

    def applied(self, state: ServerState, aggregate: Aggregate) -> ServerState:
        slots: dict[str, NDArray[Any]] = {}
        steps: dict[str, Values] = {}
        for name, mean in aggregate.mean.items():
            first = read_slot(state, _FIRST, name, shape=mean.shape)
            second = read_slot(state, _SECOND, name, shape=mean.shape)
            first, second, steps[name] = self._moved(first, second, mean)
            slots[f"{_SECOND}/{name}"] = second
            if self.beta_1:  # else m is d, and nothing of it lasts
                slots[f"{_FIRST}/{name}"] = first
        require_finite_slots(slots)
        model = add_mean(state.model, replace(aggregate, mean=steps))
        return ServerState(state.version + 1, model, {**state.slots, **slots})

    def _moved(self, first: Values, second: Values, mean: Values) -> tuple[Values, Values, Values]:
        """Return the next m and v, and the step, worked out in blocks that stay in the cache."""
        next_first, next_second, step = (np.empty(mean.shape) for _ in range(3))
        old_m, old_v, d = (a.reshape(-1) for a in (first, second, mean))
        m, v, out = (a.reshape(-1) for a in (next_first, next_second, step))
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            for start in range(0, d.size, BLOCK_ELEMENTS):
                block = slice(start, start + BLOCK_ELEMENTS)
                m[block] = self.beta_1 * old_m[block] + (1 - self.beta_1) * d[block]
                v[block] = self.second_moment(old_v[block], d[block] * d[block])
                out[block] = self.rate * m[block] / (np.sqrt(v[block]) + self.tau)
        return next_first, next_second, step
