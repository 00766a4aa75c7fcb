"""fedward's strategies under Flower's own simulation, with real nodes and messages."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

CLIENT = '''
import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(msg, context):
    """Pull the model towards a place that depends on the partition alone."""
    place = context.node_config["partition-id"]
    arrays = {
        name: array.numpy() + (0.3 * (place - array.numpy())).astype(array.numpy().dtype)
        for name, array in msg.content["arrays"].items()
    }
    return answer(msg, arrays, {"num-examples": 10 + place})


@app.evaluate()
def evaluate(msg, context):
    return answer(msg, {}, {"num-examples": 1, "distance": 2.0})


def answer(msg, arrays, metrics):
    record = ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})
    content = RecordDict({"metrics": MetricRecord(metrics)})
    if arrays:
        content["arrays"] = record
    return Message(content=content, reply_to=msg)
'''

SERVERS = {
    "both": """
    rng = np.random.default_rng(1)
    start = {"w": rng.normal(size=(4, 3)).astype(np.float32), "s": np.array(0.5)}
    final = []
    for strategy in (
        ToFlower(FedAdam(learning_rate=0.2, bias_correction="flower")),
        flower.FedAdam(eta=0.2),
    ):
        record = ArrayRecord({name: Array(array) for name, array in start.items()})
        result = strategy.start(grid=grid, initial_arrays=record, num_rounds=4)
        final.append({name: array.numpy() for name, array in result.arrays.items()})
        assert result.evaluate_metrics_clientapp[4]["distance"] == 2.0
    moved = max(np.abs(final[0][name] - start[name]).max() for name in start)
    gap = max(np.abs(final[0][name] - final[1][name]).max() for name in start)
    print(f"moved={moved:.3f} gap={gap:.3g}")
""",
    "digits": """
    from flower_digits.task import Net

    result = ToFlower(FedAvgM(momentum=0.3)).start(
        grid=grid, initial_arrays=ArrayRecord(Net().state_dict()), num_rounds=4
    )
    metrics = result.evaluate_metrics_clientapp[4]
    batches = result.arrays["norm.num_batches_tracked"].numpy()
    print(f"accuracy={metrics['eval_acc']:.4f} batches={batches}")
""",
}

SCRIPT = """
import numpy as np
import ray
from flwr.app import Array, ArrayRecord
from flwr.serverapp import ServerApp, strategy as flower
from flwr.simulation import run_simulation

from fedward.strategies import FedAdam, FedAvgM
from fedward.strategies.flower import ToFlower
from CLIENT import app as client_app

server_app = ServerApp()


@server_app.main()
def main(grid, context):SERVER

if __name__ == "__main__":
    run_simulation(
        server_app=server_app,
        client_app=client_app,
        num_supernodes=3,
        backend_config={
            "init_args": {"num_cpus": 2, "include_dashboard": False},
            "client_resources": {"num_cpus": 1, "num_gpus": 0},
        },
    )
    ray.shutdown()
"""


def simulate(folder: Path, *, server: str, client: str) -> str:
    """Run a simulation in a session of its own, end what it left behind, return its output."""
    (folder / "pulling.py").write_text(CLIENT)
    script = folder / "simulate.py"
    script.write_text(SCRIPT.replace("SERVER", SERVERS[server]).replace("CLIENT", client))
    places = [folder, ROOT / "examples" / "flower-digits", ROOT / ".links"]
    process = subprocess.Popen(
        [sys.executable, str(script)],
        env={
            **os.environ,
            "FLWR_TELEMETRY_ENABLED": "0",
            "RAY_USAGE_STATS_ENABLED": "0",
            "PYTHONPATH": os.pathsep.join(map(str, places)),
        },
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=280)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, output[-3000:]
    return output


@pytest.mark.flow
@pytest.mark.timeout(300)
def test_fedadam_gives_under_flowers_simulation_what_flowers_fedadam_gives(tmp_path: Path) -> None:
    output = simulate(tmp_path, server="both", client="pulling")
    found = re.search(r"moved=([0-9.]+) gap=([0-9.e-]+)", output)
    assert found, output[-3000:]
    assert float(found[1]) > 0.1
    assert float(found[2]) < 1e-6


@pytest.mark.flow
@pytest.mark.timeout(300)
def test_an_unchanged_flower_app_learns_under_a_strategy_of_fedward(tmp_path: Path) -> None:
    output = simulate(tmp_path, server="digits", client="flower_digits.client_app")
    found = re.search(r"accuracy=([0-9.]+) batches=(\d+)", output)
    assert found, output[-3000:]
    assert float(found[1]) > 0.85
    assert int(found[2]) == 4 * 15  # counted, not averaged: 480 of 599 images, 32 a batch, 4 rounds
