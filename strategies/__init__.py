"""How updates become the next model version; all pure."""

from fedward.strategies.base import Aggregate, ServerState, Strategy
from fedward.strategies.combiner import Combiner
from fedward.strategies.fedavg import FedAvg
from fedward.strategies.fedavgm import FedAvgM
from fedward.strategies.fedopt import FedAdagrad, FedAdam, FedYogi
from fedward.strategies.fedprox import FedProx
from fedward.strategies.registry import build, names

__all__ = [
    "Aggregate",
    "Combiner",
    "FedAdagrad",
    "FedAdam",
    "FedAvg",
    "FedAvgM",
    "FedProx",
    "FedYogi",
    "ServerState",
    "Strategy",
    "build",
    "names",
]
