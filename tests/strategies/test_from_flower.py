"""Flower's strategies behind fedward's interface."""

import os
from typing import Any

import numpy as np
import pytest

from fedward.protocol.arrays import classify, decode, encode, schema_of, subtract
from fedward.protocol.documents import ArrayRules
from fedward.strategies import (
    Combiner,
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedYogi,
    ServerState,
    Strategy,
)
from fedward.strategies.errors import StrategyError, StrategyInvalid

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
flwr_app = pytest.importorskip("flwr.app")
theirs = pytest.importorskip("flwr.serverapp.strategy")
FromFlower = pytest.importorskip("fedward.strategies.flower").FromFlower

EXAMPLES = {"site-a": 120, "site-b": 37, "site-c": 801}


def base_model() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "w": rng.normal(size=(4, 3)).astype(np.float32),
        "scale": np.array(0.5),
        "half": rng.normal(size=5).astype(np.float16),
        "steps": np.array(3),
    }


def trained_from(base: dict[str, Any], number: int) -> dict[str, dict[str, Any]]:
    rng = np.random.default_rng(number)
    return {
        site: {
            name: np.asarray(
                array + 0.3 * (shift - array) + 0.05 * rng.normal(size=array.shape)
            ).astype(array.dtype)
            if array.dtype.kind == "f"
            else np.asarray(array + shift)
            for name, array in base.items()
        }
        for shift, site in enumerate(EXAMPLES)
    }


def after_round(strategy: Strategy, state: ServerState) -> ServerState:
    schema = schema_of(state.model)
    classes = classify(schema, ArrayRules())
    combiner = Combiner(schema, classes, counted="largest")
    for site, arrays in trained_from(state.model, state.version + 1).items():
        combiner.add(subtract(arrays, state.model, classes), weight=float(EXAMPLES[site]))
    return strategy.apply(state, combiner.result())


def rounds_of(strategy: Strategy, *, rounds: int = 6) -> ServerState:
    state = strategy.init(base_model())
    for _ in range(rounds):
        state = after_round(strategy, state)
    return state


PAIRS: list[tuple[Any, Strategy]] = [
    (theirs.FedAvg(), FedAvg()),
    (theirs.FedProx(proximal_mu=0.1), FedAvg()),
    (theirs.FedAvgM(server_learning_rate=0.7, server_momentum=0.8), FedAvgM(0.7, 0.8)),
    (theirs.FedAdam(), FedAdam(bias_correction="flower")),
    (theirs.FedAdagrad(), FedAdagrad()),
    (theirs.FedYogi(), FedYogi()),
    (theirs.FedAvg(min_available_nodes=300, fraction_train=0.1), FedAvg()),
    (theirs.FedAvg(weighted_by_key="rows", arrayrecord_key="model"), FedAvg()),
]


@pytest.mark.parametrize(("flowers", "ours"), PAIRS, ids=lambda s: type(s).__name__)
def test_a_strategy_of_flower_gives_what_fedwards_own_gives(flowers: Any, ours: Strategy) -> None:
    got, expected = rounds_of(FromFlower(flowers)), rounds_of(ours)
    assert schema_of(got.model) == schema_of(expected.model)
    for name, array in expected.model.items():
        limit = 4e-3 if array.dtype == np.float16 else 1e-6  # float16: two units at 3
        assert np.max(np.abs(got.model[name] - array)) < limit
    assert got.model["steps"].dtype == np.int64
    assert (got.version, got.model["steps"]) == (6, 3 + 2 * 6)


@pytest.mark.parametrize("flowers", [pair[0] for pair in PAIRS], ids=lambda s: type(s).__name__)
def test_a_run_goes_on_in_a_new_process_from_stored_slots(flowers: Any) -> None:
    straight, state = rounds_of(FromFlower(flowers)), FromFlower(flowers).init(base_model())
    for _ in range(6):
        kept = [decode(b"".join(encode(arrays))) for arrays in (state.model, state.slots)]
        state = after_round(FromFlower(flowers), ServerState(state.version, *kept))
    for name, array in straight.model.items():
        assert array.tobytes() == state.model[name].tobytes()
    assert list(state.slots) == list(straight.slots)


def test_the_given_object_is_left_as_it_was() -> None:
    flowers = theirs.FedAdam()
    rounds_of(FromFlower(flowers), rounds=2)
    assert (flowers.m_t, flowers.v_t, flowers.current_arrays) == (None, None, None)


@pytest.mark.parametrize(
    "flowers",
    [
        theirs.Krum(),
        theirs.MultiKrum(num_malicious_nodes=1, num_nodes_to_select=3),
        theirs.Bulyan(num_malicious_nodes=1),
        theirs.FedMedian(),
        theirs.FedTrimmedAvg(),
        theirs.QFedAvg(client_learning_rate=0.1),
        theirs.FedXgbBagging(),
        theirs.FedXgbCyclic(),
        theirs.DifferentialPrivacyServerSideFixedClipping(theirs.FedAvg(), 1.0, 1.0, 7),
        theirs.DifferentialPrivacyClientSideFixedClipping(theirs.FedAvg(), 1.0, 1.0, 7),
        theirs.DifferentialPrivacyServerSideAdaptiveClipping(theirs.FedAvg(), 0.1, 7),
    ],
    ids=lambda s: type(s).__name__,
)
def test_a_strategy_that_needs_single_updates_is_refused(flowers: Any) -> None:
    with pytest.raises(StrategyInvalid, match=f"strategy {type(flowers).__name__}: cannot be used"):
        FromFlower(flowers)


def test_the_reason_is_told() -> None:
    with pytest.raises(StrategyInvalid, match="7 replies and their weighted mean gave different"):
        FromFlower(theirs.FedMedian())


class HiddenState(theirs.FedAvg):  # type: ignore[name-defined, misc]
    """Slows down by what it keeps in an object that cannot be stored."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        self.seen.append("round")
        record, metrics = super().aggregate_train(server_round, replies)
        return flwr_app.ArrayRecord(
            {n: flwr_app.Array(np.asarray(a.numpy() / len(self.seen))) for n, a in record.items()}
        ), metrics


class Decaying(theirs.FedAvg):  # type: ignore[name-defined, misc]
    def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Any:
        config["lr"] = 0.5**server_round
        return super().configure_train(server_round, arrays, config, grid)


class Other(theirs.FedAvg):  # type: ignore[name-defined, misc]
    def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Any:
        sparse = flwr_app.ArrayRecord(
            {n: flwr_app.Array(np.zeros_like(a.numpy())) for n, a in arrays.items()}
        )
        return super().configure_train(server_round, sparse, config, grid)


@pytest.mark.parametrize(
    ("flowers", "reason"),
    [
        (HiddenState(), "keeps numbers and arrays only"),
        (Decaying(), "settings change from round to round"),
        (Other(), "sends other arrays"),
    ],
)
def test_what_fedward_could_not_carry_is_refused(flowers: Any, reason: str) -> None:
    with pytest.raises(StrategyInvalid, match=reason):
        FromFlower(flowers)


class Counting(theirs.FedAvg):  # type: ignore[name-defined, misc]
    """A user's own: it moves less each time, by a number that it keeps."""

    damping = 0.0

    def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Any:
        self.base = {name: array.numpy() for name, array in arrays.items()}
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        self.damping += 1.0
        record, metrics = super().aggregate_train(server_round, replies)
        moved = {
            name: self.base[name] + (array.numpy() - self.base[name]) / self.damping
            for name, array in record.items()
        }
        if any(np.any(np.abs(array) > 1e6) for array in moved.values()):
            raise ValueError("diverged")
        return flwr_app.ArrayRecord(
            {name: flwr_app.Array(np.asarray(array)) for name, array in moved.items()}
        ), metrics


def test_a_users_own_strategy_is_carried_with_its_state() -> None:
    strategy = FromFlower(Counting())
    state = rounds_of(strategy, rounds=3)
    assert state.slots["damping/number"] == 3.0
    halved = after_round(strategy, ServerState(0, base_model(), {}))
    assert halved.slots["damping/number"] == 1.0


def test_a_failure_of_the_strategy_is_told_and_changes_nothing() -> None:
    strategy = FromFlower(Counting())
    state = strategy.init({"w": np.array([2e6])})
    schema = schema_of(state.model)
    combiner = Combiner(schema, classify(schema, ArrayRules()), counted="keep")
    combiner.add({"w": np.array([1.0])}, weight=1.0)
    with pytest.raises(StrategyError, match=r"Counting failed: ValueError\('diverged'\)"):
        strategy.apply(state, combiner.result())
    assert (state.model["w"].tolist(), state.slots) == ([2e6], {})


def test_settings_and_parameters_are_the_strategys() -> None:
    strategy = FromFlower(theirs.FedProx(proximal_mu=0.25))
    assert strategy.client_config() == {"proximal-mu": 0.25}
    assert strategy.name == "flower-fedprox"
    assert strategy.parameters["proximal-mu"] == 0.25
    assert FromFlower(theirs.FedAdam(eta=0.3)).parameters["eta"] == 0.3


def test_a_users_own_averaging_of_metrics_is_not_called() -> None:
    def needs_a_loss(records: Any, key: str) -> Any:
        raise KeyError("loss")

    rounds_of(FromFlower(theirs.FedAvg(train_metrics_aggr_fn=needs_a_loss)), rounds=1)
