"""The server optimisers give what Flower's strategies of the same names give, round by round."""

import copy
import os
from typing import Any

import numpy as np
import pytest

from fedward.protocol.arrays import classify, schema_of, subtract
from fedward.protocol.documents import ArrayRules, StrategySpec
from fedward.strategies import Combiner, FedAdagrad, FedAdam, FedAvgM, FedYogi, Strategy, build

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
flwr_app = pytest.importorskip("flwr.app")
flwr_strategy = pytest.importorskip("flwr.serverapp.strategy")
task_identity = pytest.importorskip("flwr.supercore.task_identity")

EXAMPLES = {"site-a": 120, "site-b": 37, "site-c": 801}
ROUNDS = 8


@pytest.fixture(autouse=True)
def identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower refuses to make a message in a process that is not one of its tasks."""
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(task_identity.TaskIdentity, name, 1)


class Sites:
    """As much of a grid as choosing sites takes."""

    def get_node_ids(self) -> list[int]:
        return list(range(len(EXAMPLES)))


def model(rng: Any, dtype: Any) -> dict[str, Any]:
    return {
        "conv.weight": rng.normal(size=(4, 3, 2)).astype(dtype),
        "bias": rng.normal(size=5).astype(dtype),
        "scale": np.array(rng.normal(), dtype),
    }


def trained_from(base: dict[str, Any], round_number: int) -> dict[str, dict[str, Any]]:
    """What the sites return: each pulls the model towards a place of its own, with noise."""
    rng = np.random.default_rng(round_number)
    return {
        site: {
            name: np.asarray(
                array + 0.3 * (shift - array) + 0.05 * rng.normal(size=array.shape)
            ).astype(array.dtype)
            for name, array in base.items()
        }
        for shift, site in enumerate(EXAMPLES)
    }


def by_fedward(strategy: Strategy, base: dict[str, Any]) -> list[dict[str, Any]]:
    state, models = strategy.init(base), []
    for number in range(1, ROUNDS + 1):
        schema = schema_of(state.model)
        classes = classify(schema, ArrayRules())
        combiner = Combiner(schema, classes, counted="largest")
        for site, arrays in trained_from(state.model, number).items():
            combiner.add(subtract(arrays, state.model, classes), weight=float(EXAMPLES[site]))
        state = strategy.apply(state, combiner.result())
        models.append(state.model)
    return models


def record_of(arrays: dict[str, Any]) -> Any:
    return flwr_app.ArrayRecord({name: flwr_app.Array(array) for name, array in arrays.items()})


def reply(arrays: dict[str, Any], weight: int) -> Any:
    metrics = flwr_app.MetricRecord({"num-examples": weight})
    content = flwr_app.RecordDict({"arrays": record_of(arrays), "metrics": metrics})
    return flwr_app.Message(content=content, dst_node_id=1, message_type="train")


def by_flower(strategy: Any, base: dict[str, Any]) -> list[dict[str, Any]]:
    arrays, models = record_of(base), []
    for number in range(1, ROUNDS + 1):
        strategy.configure_train(number, arrays, flwr_app.ConfigRecord(), Sites())
        current = {name: array.numpy() for name, array in arrays.items()}
        replies = [
            reply(trained, EXAMPLES[site])
            for site, trained in trained_from(current, number).items()
        ]
        arrays, _ = strategy.aggregate_train(number, replies)
        models.append({name: array.numpy() for name, array in arrays.items()})
    return models


PAIRS: list[tuple[Strategy, Any]] = [
    (
        FedAvgM(learning_rate=0.7, momentum=0.8),
        flwr_strategy.FedAvgM(server_learning_rate=0.7, server_momentum=0.8),
    ),
    (FedAvgM(learning_rate=1.0, momentum=0.0), flwr_strategy.FedAvgM()),
    (FedAdam(bias_correction="flower"), flwr_strategy.FedAdam()),
    (
        FedAdam(learning_rate=0.03, beta_1=0.8, beta_2=0.95, tau=0.02, bias_correction="flower"),
        flwr_strategy.FedAdam(eta=0.03, beta_1=0.8, beta_2=0.95, tau=0.02),
    ),
    (FedAdagrad(), flwr_strategy.FedAdagrad()),
    (FedAdagrad(learning_rate=0.4, tau=0.1), flwr_strategy.FedAdagrad(eta=0.4, tau=0.1)),
    (FedYogi(), flwr_strategy.FedYogi()),
    (
        FedYogi(learning_rate=0.2, beta_1=0.5, beta_2=0.9, tau=0.01),
        flwr_strategy.FedYogi(eta=0.2, beta_1=0.5, beta_2=0.9, tau=0.01),
    ),
]


def gap(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> float:
    return max(
        float(np.max(np.abs(ours[name] - theirs[name])))
        for ours, theirs in zip(one, other, strict=True)
        for name in ours
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=lambda pair: type(pair).__name__)
def test_eight_rounds_are_flowers_within_1e_6(ours: Strategy, theirs: Any, dtype: Any) -> None:
    base = model(np.random.default_rng(0), dtype)
    assert gap(by_fedward(ours, base), by_flower(copy.deepcopy(theirs), base)) < 1e-6


def test_by_default_fedadam_differs_from_flowers_by_the_rates_correction_alone() -> None:
    class Uncorrected(flwr_strategy.FedAdam):  # type: ignore[name-defined, misc]
        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            ahead = server_round + 1
            self.eta = 0.1 * (1 - 0.9**ahead) / np.sqrt(1 - 0.99**ahead)
            return super().aggregate_train(server_round, replies)

    base = model(np.random.default_rng(0), np.float64)
    ours = by_fedward(FedAdam(), base)
    assert gap(ours, by_flower(Uncorrected(), base)) < 1e-9
    assert gap(ours, by_flower(flwr_strategy.FedAdam(), base)) > 1e-2


def test_the_defaults_are_flowers() -> None:
    for name, theirs in (
        ("fedadam", flwr_strategy.FedAdam()),
        ("fedyogi", flwr_strategy.FedYogi()),
        ("fedadagrad", flwr_strategy.FedAdagrad()),
    ):
        ours = dict(build(StrategySpec(name=name)).parameters)
        ours.pop("bias-correction", None)
        assert ours.pop("learning-rate") == theirs.eta
        assert ours == {key: getattr(theirs, key.replace("-", "_")) for key in ours}
