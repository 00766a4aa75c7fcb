"""FedAvgM (Hsu et al., 2019, "Measuring the Effects of Non-Identical Data Distribution").

The mean difference d is the negative of a gradient: v <- momentum * v + d, w <- w + rate * v,
with v = 0 before the first round. These are the steps of Flower's `FedAvgM` with
`server_learning_rate` and `server_momentum`; that one keeps v in the arrays' own dtypes and
steps integer arrays as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from fedward.protocol.arrays import Arrays
from fedward.protocol.documents import Scalar
from fedward.strategies.base import Aggregate, ServerState
from fedward.strategies.slots import read_slot, require_finite_slots
from fedward.strategies.steps import add_mean

LEARNING_RATE = "learning-rate"
MOMENTUM = "momentum"
_VELOCITY = "v"


@dataclass(frozen=True, slots=True)
class FedAvgM:
    """Federated averaging whose steps have momentum; one float64 slot for each averaged array.

    `learning_rate` is the server's (>= 0), `momentum` lies in [0, 1). With rate 1 and momentum
    0 the steps are FedAvg's.
    """

    learning_rate: float = 1.0
    momentum: float = 0.9
    name: str = "fedavgm"

    @property
    def parameters(self) -> Mapping[str, Scalar]:
        """`learning-rate` and `momentum`."""
        return {LEARNING_RATE: self.learning_rate, MOMENTUM: self.momentum}

    def init(self, model: Arrays) -> ServerState:
        """Return version 0 of `model`, at rest."""
        return ServerState(version=0, model=dict(model), slots={})

    def apply(self, state: ServerState, aggregate: Aggregate) -> ServerState:
        """Return the next version.

        Raises:
            Overflow: a new value does not fit its array's dtype, or a slot float64.
        """
        slots, steps = {}, {}
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            for name, mean in aggregate.mean.items():
                velocity = np.array(read_slot(state, _VELOCITY, name, shape=mean.shape))
                velocity *= self.momentum
                velocity += mean
                slots[f"{_VELOCITY}/{name}"] = velocity
                steps[name] = np.asarray(velocity * self.learning_rate)
        require_finite_slots(slots)
        model = add_mean(state.model, replace(aggregate, mean=steps))
        return ServerState(state.version + 1, model, {**state.slots, **slots})

    def client_config(self) -> dict[str, Scalar]:
        """Return nothing: the app trains as it likes."""
        return {}
