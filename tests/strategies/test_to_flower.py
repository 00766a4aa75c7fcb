"""fedward's strategies as Flower strategies."""

import logging
import os
from typing import Any

import numpy as np
import pytest

from fedward.protocol.documents import ArrayRules, WeightRules
from fedward.strategies import FedAdam, FedAvg, FedAvgM, FedProx, FedYogi, Strategy

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
flwr_app = pytest.importorskip("flwr.app")
theirs = pytest.importorskip("flwr.serverapp.strategy")
exceptions = pytest.importorskip("flwr.serverapp.exception")
task_identity = pytest.importorskip("flwr.supercore.task_identity")
ToFlower = pytest.importorskip("fedward.strategies.flower").ToFlower

EXAMPLES = {1: 120, 2: 37, 3: 801}


@pytest.fixture(autouse=True)
def identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower refuses to make a message in a process that is not one of its tasks."""
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(task_identity.TaskIdentity, name, 1)


class Nodes:
    """As much of a grid as choosing nodes takes."""

    def get_node_ids(self) -> list[int]:
        return list(EXAMPLES)


def record_of(arrays: dict[str, Any]) -> Any:
    return flwr_app.ArrayRecord({name: flwr_app.Array(array) for name, array in arrays.items()})


def values_of(record: Any) -> dict[str, Any]:
    return {name: array.numpy() for name, array in record.items()}


def reply_of(node: int, arrays: dict[str, Any], **metrics: Any) -> Any:
    stated = {name.replace("_", "-"): value for name, value in metrics.items()}
    content = flwr_app.RecordDict(
        {"arrays": record_of(arrays), "metrics": flwr_app.MetricRecord(stated)}
    )
    sent = flwr_app.Message(flwr_app.RecordDict(), dst_node_id=node, message_type="train")
    return flwr_app.Message(content, reply_to=sent)


def aggregated(strategy: Any, base: dict[str, Any], replies: list[Any]) -> Any:
    strategy.configure_train(1, record_of(base), flwr_app.ConfigRecord(), Nodes())
    record, metrics = strategy.aggregate_train(1, replies)
    return (None if record is None else values_of(record)), metrics


def rounds_of(strategy: Any, *, rounds: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    record = record_of({"w": rng.normal(size=(4, 3)).astype(np.float32), "s": np.array(0.5)})
    for number in range(1, rounds + 1):
        strategy.configure_train(number, record, flwr_app.ConfigRecord(), Nodes())
        base, replies = values_of(record), []
        for node, examples in EXAMPLES.items():
            noise = np.random.default_rng((number, node))
            trained = {
                name: np.asarray(a + 0.3 * (node - a) + 0.05 * noise.normal(size=a.shape), a.dtype)
                for name, a in base.items()
            }
            replies.append(reply_of(node, trained, num_examples=examples, loss=1.0 / node))
        record, metrics = strategy.aggregate_train(number, replies)
        assert metrics["loss"] == pytest.approx((120 + 37 / 2 + 801 / 3) / 958)
    return values_of(record)


@pytest.mark.parametrize(
    ("ours", "flowers"),
    [
        (FedAvg(), theirs.FedAvg()),
        (FedAvgM(0.7, 0.8), theirs.FedAvgM(server_learning_rate=0.7, server_momentum=0.8)),
        (FedAdam(bias_correction="flower"), theirs.FedAdam()),
        (FedYogi(), theirs.FedYogi()),
    ],
    ids=lambda s: type(s).__name__,
)
def test_six_rounds_are_those_of_flowers_own_strategy(ours: Strategy, flowers: Any) -> None:
    adapter = ToFlower(ours)
    assert isinstance(adapter, theirs.Strategy)
    got, expected = rounds_of(adapter, rounds=6), rounds_of(flowers, rounds=6)
    for name, array in expected.items():
        assert np.max(np.abs(got[name] - array)) < 1e-6
    assert adapter.state.version == 6


def test_messages_carry_the_model_the_round_and_the_strategys_settings() -> None:
    config = flwr_app.ConfigRecord({"lr": 0.1})
    adapter = ToFlower(FedProx(proximal_mu=0.25))
    messages = list(adapter.configure_train(4, record_of({"w": np.ones(2)}), config, Nodes()))
    assert len(messages) == 3
    for message in messages:
        sent = dict(message.content["config"])
        assert sent == {"lr": 0.1, "proximal-mu": 0.25, "server-round": 4}
        assert values_of(message.content["arrays"])["w"].tolist() == [1.0, 1.0]


BASE = {"w": np.zeros(2, np.float32), "n": np.array(3)}
GOOD = {"w": np.array([2.0, 4.0], np.float32), "n": np.array(5)}


@pytest.mark.parametrize(
    ("bad", "metrics", "reason"),
    [
        ({**GOOD, "w": np.array([np.nan, 1.0], np.float32)}, {"num_examples": 9}, "1 of 2 values"),
        ({**GOOD, "w": np.zeros(1, np.float32)}, {"num_examples": 9}, "expected float32 (2,)"),
        ({**GOOD, "w": np.zeros(2)}, {"num_examples": 9}, "got float64 (2,)"),
        ({"w": GOOD["w"]}, {"num_examples": 9}, "array 'n': got none"),
        (GOOD, {"num_examples": -1}, "got -1"),
        (GOOD, {"num_examples": 10**12}, "the plan's cap"),
        (GOOD, {"num_examples": [1, 2]}, "got a list"),
        (GOOD, {"rows": 3}, "got none, expected a number"),
    ],
)
def test_a_reply_that_the_gate_refuses_is_left_out_and_logged(
    bad: dict[str, Any], metrics: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    adapter = ToFlower(FedAvg(), weights=WeightRules(cap=1e9))
    replies = [reply_of(1, bad, **metrics), reply_of(2, GOOD, num_examples=4)]
    with caplog.at_level(logging.INFO, "flwr"):
        model, _ = aggregated(adapter, BASE, replies)
    assert model["w"].tolist() == [2.0, 4.0]
    (line,) = [text for text in caplog.text.splitlines() if "is left out" in text]
    assert "the reply of node 1 is left out: " in line
    assert reason in line


def test_failed_nodes_and_replies_without_records_are_left_out() -> None:
    sent = flwr_app.Message(flwr_app.RecordDict(), dst_node_id=1, message_type="train")
    replies = [
        flwr_app.Message(flwr_app.Error(0, "out of memory"), reply_to=sent),
        flwr_app.Message(flwr_app.RecordDict(), reply_to=sent),
        reply_of(2, GOOD, num_examples=4),
    ]
    model, _ = aggregated(ToFlower(FedAvg()), BASE, replies)
    assert (model["w"].tolist(), model["n"]) == ([2.0, 4.0], 5)


def test_without_examples_there_is_no_model_and_the_old_one_stays() -> None:
    adapter = ToFlower(FedAvgM())
    for replies in ([], [reply_of(1, GOOD, num_examples=0)]):
        assert aggregated(adapter, BASE, replies) == (None, None)
        assert adapter.state.version == 0


def test_the_order_of_arrival_changes_no_bit() -> None:
    rng = np.random.default_rng(2)
    replies = [
        reply_of(node, {"w": rng.normal(size=50).astype(np.float32)}, num_examples=node * 7)
        for node in range(1, 9)
    ]
    base = {"w": rng.normal(size=50).astype(np.float32)}
    bits = {
        aggregated(ToFlower(FedAdam()), base, arrived)[0]["w"].tobytes()
        for arrived in (replies, replies[::-1], replies[3:] + replies[:3])
    }
    assert len(bits) == 1


def test_rules_for_arrays_and_weights_are_fedwards() -> None:
    adapter = ToFlower(
        FedAvg(),
        arrays=ArrayRules(local=["head"], counted="keep"),
        weights=WeightRules(by="uniform"),
    )
    base = {"w": np.zeros(1), "head": np.zeros(1), "n": np.array(3)}
    replies = []
    for node, examples in ((1, 10), (2, 990)):
        trained = {"w": np.full(1, float(node)), "head": np.ones(1), "n": np.array(9)}
        replies.append(reply_of(node, trained, num_examples=examples))
    model, _ = aggregated(adapter, base, replies)
    assert {name: array.tolist() for name, array in model.items()} == {
        "w": [1.5],
        "head": [0.0],
        "n": 3,
    }


def test_a_model_that_cannot_be_made_ends_the_run_by_flowers_own_error() -> None:
    big = np.array([3e38], np.float32)
    adapter = ToFlower(FedAvgM(learning_rate=10.0))
    with pytest.raises(exceptions.AggregationError, match="overflow: array 'w'"):
        aggregated(adapter, {"w": 0 * big}, [reply_of(1, {"w": big}, num_examples=1)])
    with pytest.raises(exceptions.AggregationError, match="configure_train has not been called"):
        ToFlower(FedAvg()).aggregate_train(1, [])


def test_nodes_are_chosen_and_evaluated_by_the_sampling_that_is_given(
    caplog: pytest.LogCaptureFixture,
) -> None:
    adapter = ToFlower(FedAdam(), sampling=theirs.FedAvg(fraction_train=0.7, fraction_evaluate=0.0))
    model, config = record_of({"w": np.ones(1)}), flwr_app.ConfigRecord()
    assert len(list(adapter.configure_train(1, model, config, Nodes()))) == 2
    assert list(adapter.configure_evaluate(1, model, config, Nodes())) == []
    reply = reply_of(1, {}, num_examples=5, accuracy=0.5)
    assert dict(adapter.aggregate_evaluate(1, [reply])) == {"accuracy": 0.5}
    with caplog.at_level(logging.INFO, "flwr"):
        adapter.summary()
    assert "fedward's fedadam: {'learning-rate': 0.1" in caplog.text
    assert "train (0.70)" in caplog.text
