"""Whole apps in the worker: the tabular recipe, and an unmodified Flower app."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedward.client.frames import read_frame, write_frame
from fedward.client.recipes.registry import recipe
from fedward.protocol.arrays import decode, encode, schema_of

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "flower-digits"


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """Start workers; `ask(kind, arrays, **fields)` sends one message and returns answer, arrays.

    Where the answer is not what `ok` says, the test fails with what the worker tells.
    """
    processes = []

    def load(app):
        folder = tmp_path_factory.mktemp("worker")
        process = subprocess.Popen(
            [sys.executable, "-m", "fedward.client.worker"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder,
        )  # fmt: skip
        processes.append(process)

        def ask(kind, arrays, *, ok=True, **fields):
            model, reply = folder / "model", folder / "reply"
            model.write_bytes(b"".join(encode(arrays)))
            files = {"arrays_path": str(model), "reply_path": str(reply)}
            ids = {"op": "run", "kind": kind, "run_id": 1, "node_id": 2, "seed": 3}
            write_frame(process.stdin, {**ids, **files, **fields})
            answer = read_frame(process.stdout)
            assert answer is not None, f"the worker ended: {process.wait(timeout=30)}"
            assert answer["ok"] is ok, answer.get("message", answer)
            return answer, decode(reply.read_bytes()) if answer.get("arrays") else None

        write_frame(process.stdin, {"op": "load", "app": str(app)})
        loaded = read_frame(process.stdout)
        assert loaded is not None, f"the worker ended: {process.wait(timeout=30)}"
        assert loaded["ok"], loaded["message"]
        return ask

    yield load
    for process in processes:
        process.stdin.close()
        assert process.wait(timeout=30) == 0
        process.stdout.close()


@pytest.fixture(scope="module")
def tabular(start):
    return start("tabular")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A file of 400 rows whose label is a noisy threshold of two features of unlike scale."""
    rng = np.random.default_rng(0)
    age, dose = rng.normal(60, 10, 400), rng.normal(1e-3, 1e-4, 400)
    risk = (age - 60) / 10 + (dose - 1e-3) / 1e-4 + rng.normal(0, 0.5, 400)
    frame = pd.DataFrame({"age": age, "dose": dose, "ill": np.where(risk > 0, "yes", "no")})
    frame.loc[::50, "age"] = np.nan
    path = tmp_path_factory.mktemp("site") / "rows.csv"
    frame.to_csv(path, index=False)
    return path


CONFIG = {"target": "ill", "features": "age,dose", "positive": "yes", "epochs": 5}


def prepared(ask, site, config):
    node = {"data-path": str(site)}
    arrays = recipe("tabular").initial_arrays(config, 0)
    answer, _ = ask("query", arrays, action="statistics", run_config=config, node_config=node)
    means = {f"prepared.{k}": v for k, v in answer["metrics"].items() if k != "num-examples"}
    return arrays, {"run_config": config, "node_config": node, "config": means}


@pytest.mark.parametrize("model", ["logistic", "mlp"])
def test_the_recipe_learns(tabular, site, model):
    arrays, fields = prepared(tabular, site, {**CONFIG, "model": model, "hidden": "8"})
    before, _ = tabular("evaluate", arrays, **fields)
    answer, trained = tabular("train", arrays, **fields)
    assert answer["metrics"]["num-examples"] == 320
    assert schema_of(trained) == schema_of(arrays)
    after, _ = tabular("evaluate", trained, **fields)
    assert after["metrics"]["num-examples"] == 80
    assert after["metrics"]["loss"] < before["metrics"]["loss"] - 0.2
    assert after["metrics"]["accuracy"] > 0.8
    assert after["metrics"]["auc"] > 0.9


def test_the_recipe_gives_the_same_bits_in_another_process(start, tabular, site):
    config = {**CONFIG, "model": "mlp", "momentum": 0.9, "batch-size": 7}
    digests = set()
    for ask in (tabular, tabular, start("tabular")):
        arrays, fields = prepared(ask, site, config)
        _, trained = ask("train", arrays, **fields)
        digests.add(b"".join(encode(trained)))
    assert len(digests) == 1


def test_fedprox_keeps_the_model_nearer_to_the_received_one(tabular, site):
    arrays, fields = prepared(tabular, site, CONFIG)
    distances = []
    for mu in (0, 1.0):
        fields["config"] = {**fields["config"], "proximal-mu": mu}
        _, trained = tabular("train", arrays, **fields)
        distances.append(sum(float(np.abs(trained[n] - arrays[n]).sum()) for n in arrays))
    assert distances[1] < distances[0] * 0.8


@pytest.mark.parametrize(
    ("changes", "failure", "text"),
    [
        ({"node_config": {}}, "dataset-unreadable", "expected a file"),
        ({"node_config": {"data-path": "/absent.csv"}}, "dataset-unreadable", "/absent.csv"),
        ({"run_config": {**CONFIG, "epochs": 0}}, "plan-invalid", "epochs: got 0"),
        ({"config": {}}, "plan-invalid", "prepare = 'statistics'"),
        ({"run_config": {**CONFIG, "model": "mlp"}}, "model-invalid", "layers.1.weight"),
        ({"run_config": {**CONFIG, "test-fraction": 0.0}}, "dataset-unreadable", "holds out no"),
        ({"device": "cuda:7"}, "resources", "cuda:7"),
    ],
)
def test_what_is_wrong_has_a_type_and_a_reason(tabular, site, changes, failure, text):
    arrays, fields = prepared(tabular, site, CONFIG)
    answer, _ = tabular("evaluate", arrays, ok=False, **{**fields, **changes})
    assert answer["failure"] == failure
    assert text in answer["message"]


def digits_model():
    spec = importlib.util.spec_from_file_location("task", EXAMPLE / "flower_digits" / "task.py")
    task = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(task)
    return {name: tensor.numpy() for name, tensor in task.Net().state_dict().items()}


def averaged(updates):
    """FedAvg over (arrays, weight); integers take the largest value."""
    total = sum(weight for _, weight in updates)
    model = {}
    for name, first in updates[0][0].items():
        if first.dtype.kind == "f":
            mean = sum(arrays[name].astype(np.float64) * w for arrays, w in updates) / total
            model[name] = mean.astype(first.dtype)
        else:
            largest = np.max([arrays[name] for arrays, _ in updates], axis=0)
            model[name] = np.asarray(largest)
    return model


def test_an_unmodified_flower_app_learns_over_rounds(start):
    ask, model = start(EXAMPLE), digits_model()
    schema, scores = schema_of(model), []
    for number in range(1, 4):
        updates, sites = [], [{"partition-id": i, "num-partitions": 3} for i in range(3)]
        for node in sites:
            config = {"server-round": number}
            answer, trained = ask("train", model, node_config=node, config=config, seed=number)
            assert schema_of(trained) == schema
            updates.append((trained, answer["num_examples"]))
        model = averaged(updates)
        answers = [ask("evaluate", model, node_config=node)[0] for node in sites]
        scores.append(np.mean([a["metrics"]["eval_acc"] for a in answers]))
    assert model["norm.num_batches_tracked"].dtype == np.int64
    assert scores[-1] > 0.9


def test_settings_of_the_plan_reach_an_unmodified_app(start):
    ask, model = start(EXAMPLE), digits_model()
    node = {"partition-id": 0, "num-partitions": 3}
    _, trained = ask("train", model, node_config=node, run_config={"local-epochs": 3})
    # 599 images, 480 to train on, batches of 32: 15 a round.
    assert trained["norm.num_batches_tracked"] == 45
