"""FedAvg gives what Flower's own FedAvg gives for the same replies."""

import os
from typing import Any

import numpy as np
import pytest

from fedward.protocol.arrays import classify, schema_of, subtract
from fedward.protocol.documents import ArrayRules
from fedward.strategies import Combiner, FedAvg
from fedward.strategies.metrics import average_metrics

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
flwr_app = pytest.importorskip("flwr.app")
flwr_strategy = pytest.importorskip("flwr.serverapp.strategy")
task_identity = pytest.importorskip("flwr.supercore.task_identity")

EXAMPLES = {"site-a": 120, "site-b": 37, "site-c": 801}


@pytest.fixture(autouse=True)
def identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower refuses to make a message in a process that is not one of its tasks."""
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(task_identity.TaskIdentity, name, 1)


def model(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "conv.weight": rng.normal(size=(8, 3, 3, 3)).astype(np.float32),
        "conv.bias": rng.normal(size=8).astype(np.float32),
        "scale": np.array(rng.normal(), np.float32),
        "double": rng.normal(size=(5, 2)),
    }


def trained() -> dict[str, dict[str, Any]]:
    return {site: model(seed) for seed, site in enumerate(EXAMPLES, start=1)}


def metrics(site: str) -> dict[str, Any]:
    n = EXAMPLES[site]
    return {"loss": 1.0 / n, "curve": [0.5 * n, 2.0], "num-examples": n}


def replies_for_flower() -> list[Any]:
    return [
        flwr_app.Message(
            content=flwr_app.RecordDict(
                {
                    "arrays": flwr_app.ArrayRecord(
                        {name: flwr_app.Array(array) for name, array in arrays.items()}
                    ),
                    "metrics": flwr_app.MetricRecord(metrics(site)),
                }
            ),
            dst_node_id=1,
            message_type="train",
        )
        for site, arrays in trained().items()
    ]


def test_the_next_model_is_flowers_within_1e_6() -> None:
    base = model(0)
    classes = classify(schema_of(base), ArrayRules())
    combiner = Combiner(schema_of(base), classes, counted="largest")
    for site, arrays in sorted(trained().items()):
        combiner.add(subtract(arrays, base, classes), weight=float(EXAMPLES[site]))
    ours = FedAvg().apply(FedAvg().init(base), combiner.result()).model

    theirs, _ = flwr_strategy.FedAvg().aggregate_train(1, replies_for_flower())
    assert list(theirs) == list(ours)
    for name, array in theirs.items():
        assert np.max(np.abs(array.numpy() - ours[name])) < 1e-6


def test_the_metrics_are_flowers_within_1e_12() -> None:
    ours = average_metrics([(float(n), metrics(site)) for site, n in EXAMPLES.items()])
    _, theirs = flwr_strategy.FedAvg().aggregate_train(1, replies_for_flower())
    assert ours.pop("num-examples") == 958
    assert set(ours) == set(theirs)
    assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-12)
    assert ours["curve"] == pytest.approx(theirs["curve"], rel=1e-12)
