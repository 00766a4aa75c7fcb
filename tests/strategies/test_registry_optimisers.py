"""What a plan may say of the server optimisers."""

import pytest

from fedward.protocol.documents import Scalar, StrategySpec
from fedward.strategies import FedAdagrad, FedAdam, FedAvgM, FedYogi, Strategy, build, names
from fedward.strategies.errors import StrategyInvalid
from fedward.strategies.registry import parameters_of

DEFAULTS: list[Strategy] = [FedAdagrad(), FedAdam(), FedAvgM(), FedYogi()]


@pytest.mark.parametrize("strategy", DEFAULTS)
def test_a_plan_that_gives_no_parameters_gets_the_defaults(strategy: Strategy) -> None:
    assert build(StrategySpec(name=strategy.name)) == strategy


@pytest.mark.parametrize("name", names())
def test_what_a_strategy_says_of_itself_builds_it_again(name: str) -> None:
    changed = {p.name: 0.25 for p in parameters_of(name) if not p.choices}
    strategy = build(StrategySpec(name=name, parameters=changed))
    assert build(StrategySpec(name=name, parameters=dict(strategy.parameters))) == strategy
    assert set(strategy.parameters) == {p.name for p in parameters_of(name)}


@pytest.mark.parametrize(
    ("name", "parameter", "value", "fault"),
    [
        ("fedavgm", "momentum", 1.0, "got 1.0, expected 0.0 to 0.99"),
        ("fedavgm", "learning-rate", -0.1, "got -0.1, expected 0.0 to inf"),
        ("fedadam", "beta-1", 1, "got 1, expected 0.0 to 0.99"),
        ("fedyogi", "beta-2", -0.1, "got -0.1, expected 0.0 to"),
        ("fedadagrad", "tau", 0.0, "got 0.0, expected 1e-12 to inf"),
        ("fedadam", "bias-correction", "adam", "got 'adam', expected one of none, flower"),
        ("fedadam", "bias-correction", True, "got True, expected one of none, flower"),
        ("fedadagrad", "beta-2", 0.9, "got parameter 'beta-2', expected 'learning-rate', 'beta-1'"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(
    name: str, parameter: str, value: Scalar, fault: str
) -> None:
    with pytest.raises(StrategyInvalid, match=fault):
        build(StrategySpec(name=name, parameters={parameter: value}))


def test_flowers_correction_is_asked_for_by_name() -> None:
    spec = StrategySpec(name="fedadam", parameters={"bias-correction": "flower"})
    assert build(spec) == FedAdam(bias_correction="flower")
