"""FedProx (Li et al., 2020, "Federated Optimization in Heterogeneous Networks")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fedward.protocol.arrays import Arrays
from fedward.protocol.documents import Scalar
from fedward.strategies.base import Aggregate, ServerState
from fedward.strategies.fedavg import FedAvg

PROXIMAL_MU = "proximal-mu"
"""Key of the ConfigRecord, as in Flower's own FedProx."""


@dataclass(frozen=True, slots=True)
class FedProx:
    """Averages as FedAvg does; each site adds mu/2 ||w - w_received||^2 to its loss.

    The proximal term is the app's to add: the strategy only tells it `proximal_mu` (mu >= 0).
    """

    proximal_mu: float
    name: str = "fedprox"

    @property
    def parameters(self) -> Mapping[str, Scalar]:
        """`proximal-mu`."""
        return {PROXIMAL_MU: self.proximal_mu}

    def init(self, model: Arrays) -> ServerState:
        """Return version 0 of `model`."""
        return FedAvg().init(model)

    def apply(self, state: ServerState, aggregate: Aggregate) -> ServerState:
        """Return the next version.

        Raises:
            Overflow: a new value does not fit its array's dtype.
        """
        return FedAvg().apply(state, aggregate)

    def client_config(self) -> dict[str, Scalar]:
        """Return `proximal-mu` for the app's loss."""
        return {PROXIMAL_MU: self.proximal_mu}
