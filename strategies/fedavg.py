"""Federated averaging (McMahan et al., 2017, "Communication-Efficient Learning", Algorithm 1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fedward.protocol.arrays import Arrays
from fedward.protocol.documents import Scalar
from fedward.strategies.base import Aggregate, ServerState
from fedward.strategies.steps import add_mean


@dataclass(frozen=True, slots=True)
class FedAvg:
    """The new model is the old one plus the weighted mean of the differences.

    With differences to the same base this is the weighted mean of the trained models.
    """

    name: str = "fedavg"

    @property
    def parameters(self) -> Mapping[str, Scalar]:
        """None."""
        return {}

    def init(self, model: Arrays) -> ServerState:
        """Return version 0 of `model`; there is nothing else to remember."""
        return ServerState(version=0, model=dict(model), slots={})

    def apply(self, state: ServerState, aggregate: Aggregate) -> ServerState:
        """Return the next version.

        Raises:
            Overflow: a new value does not fit its array's dtype.
        """
        return ServerState(state.version + 1, add_mean(state.model, aggregate), state.slots)

    def client_config(self) -> dict[str, Scalar]:
        """Return nothing: the app trains as it likes."""
        return {}
