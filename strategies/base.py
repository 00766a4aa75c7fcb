"""What a strategy is: the state that it keeps, and how an aggregate changes it.

A strategy is `init` and `apply(state, aggregate) -> state`. All that it remembers is in the
state, as named arrays, so that a state can be stored, restored and compared bit by bit. It
sees the aggregate only, never a single update, and thus works behind secure aggregation too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedward.protocol.arrays import Arrays
from fedward.protocol.documents import Scalar


@dataclass(frozen=True, slots=True)
class ServerState:
    """A model version and what the strategy's optimiser remembers.

    `version` counts the applied aggregates from 0. `model` has the plan's arrays in their
    order; `slots` are the optimiser's own arrays (empty for FedAvg). Neither is modified.
    """

    version: int
    model: dict[str, NDArray[Any]]
    slots: dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """What the updates of an attempt say together.

    `mean` is the weighted mean of the differences of the averaged arrays, float64, in the
    model's shapes. `counted` has the new values of integer and boolean arrays; an array that
    is absent keeps its value. `weight` is the sum of the weights, `updates` their number.
    """

    mean: dict[str, NDArray[np.float64]]
    counted: dict[str, NDArray[Any]]
    weight: float
    updates: int


class Strategy(Protocol):
    """How an aggregate becomes the next model version."""

    @property
    def name(self) -> str:
        """The registered name."""
        ...

    @property
    def parameters(self) -> Mapping[str, Scalar]:
        """The parameters in force, defaults included."""
        ...

    def init(self, model: Arrays) -> ServerState:
        """Return version 0 of `model`."""
        ...

    def apply(self, state: ServerState, aggregate: Aggregate) -> ServerState:
        """Return the next version; `state` stays as it is.

        Raises:
            Overflow: a new value does not fit its array's dtype.
        """
        ...

    def client_config(self) -> dict[str, Scalar]:
        """Return what each message's ConfigRecord carries for the app."""
        ...
