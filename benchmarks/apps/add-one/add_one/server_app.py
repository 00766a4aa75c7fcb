"""The server for Flower's own runtime: FedAvg that notes when each round was aggregated."""

import json
import time
from pathlib import Path

from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from add_one.task import initial_arrays

app = ServerApp()


class TimedFedAvg(FedAvg):
    """FedAvg that writes to `timings`, after each round, when the rounds were aggregated."""

    def __init__(self, nodes: int, timings: str) -> None:
        super().__init__(
            fraction_train=1.0,
            fraction_evaluate=0.0,
            min_train_nodes=nodes,
            min_evaluate_nodes=0,
            min_available_nodes=nodes,
        )
        self.timings = timings
        started = time.time()  # noqa: TID251  what is measured is this machine's time
        self.report = {"started": started, "ends": [], "replies": [], "smallest": []}

    def aggregate_train(self, server_round, replies):
        answered = list(replies)
        arrays, metrics = super().aggregate_train(server_round, answered)
        self.report["ends"].append(time.time())  # noqa: TID251  as above
        self.report["replies"].append(sum(not reply.has_error() for reply in answered))
        smallest = min(float(array.numpy().min()) for array in arrays.values())
        self.report["smallest"].append(smallest)
        self.write()
        return arrays, metrics

    def write(self) -> None:
        if self.timings:
            new = Path(self.timings + ".new")
            new.write_text(json.dumps(self.report), encoding="utf-8")
            new.replace(self.timings)


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    strategy = TimedFedAvg(config["num-nodes"], config["timings"])
    arrays = initial_arrays(config["elements"])
    record = ArrayRecord({name: Array(array) for name, array in arrays.items()})
    strategy.start(grid=grid, initial_arrays=record, num_rounds=config["num-server-rounds"])
