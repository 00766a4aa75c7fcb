"""How updates become the next model version; all pure."""

from fedward.strategies.base import Aggregate, ServerState, Strategy
from fedward.strategies.combiner import Combiner
from fedward.strategies.fedavg import FedAvg
from fedward.strategies.fedprox import FedProx
from fedward.strategies.registry import build, names

__all__ = [
    "Aggregate",
    "Combiner",
    "FedAvg",
    "FedProx",
    "ServerState",
    "Strategy",
    "build",
    "names",
]
