import pytest

from fedward.protocol.documents import Scalar, StrategySpec
from fedward.strategies import FedAvg, FedProx, build, names
from fedward.strategies.errors import StrategyInvalid
from fedward.strategies.registry import parameters_of


def reasons(name: str, **parameters: Scalar) -> list[str]:
    given = {key.replace("_", "-"): value for key, value in parameters.items()}
    with pytest.raises(StrategyInvalid) as caught:
        build(StrategySpec(name=name, parameters=given))
    assert caught.value.reason == "strategy-invalid"
    return caught.value.reasons


def test_the_registered_strategies_are_built_by_name() -> None:
    assert names() == ("fedadagrad", "fedadam", "fedavg", "fedavgm", "fedprox", "fedyogi")
    assert build(StrategySpec()) == FedAvg()
    spec = StrategySpec(name="fedprox", parameters={"proximal-mu": 1})
    assert build(spec) == FedProx(proximal_mu=1.0)
    assert [p.name for p in parameters_of("fedprox")] == ["proximal-mu"]
    assert parameters_of("fedavg") == ()


def test_an_unknown_name_is_refused_listing_the_known_ones() -> None:
    assert reasons("krum") == ["strategy: got 'krum', expected one of " + ", ".join(names())]
    with pytest.raises(StrategyInvalid, match="got 'krum'"):
        parameters_of("krum")


def test_all_that_is_wrong_is_told_at_once() -> None:
    assert reasons("fedprox", mu=1.0, eta=2.0) == [
        "strategy fedprox: got parameter 'eta', expected 'proximal-mu'",
        "strategy fedprox: got parameter 'mu', expected 'proximal-mu'",
        "strategy fedprox: parameter 'proximal-mu': missing",
    ]
    assert reasons("fedavg", eta=1.0) == ["strategy fedavg: got parameter 'eta', expected none"]


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("0.1", "got '0.1', expected a finite number"),
        (True, "got True, expected a finite number"),
        (float("inf"), "got inf, expected a finite number"),
        (-0.5, "got -0.5, expected 0.0 to inf"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(value: Scalar, fault: str) -> None:
    with pytest.raises(StrategyInvalid, match=fault):
        build(
            StrategySpec.model_construct(name="fedprox", parameters={"proximal-mu": value})
        )  # fmt: skip
