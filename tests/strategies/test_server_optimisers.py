"""FedAvgM, FedAdam, FedAdagrad and FedYogi by hand, by their laws, and through stored slots."""

from math import sqrt
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedward.protocol.arrays import BLOCK_ELEMENTS, decode, encode, schema_of
from fedward.strategies import (
    Aggregate,
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedYogi,
    ServerState,
    Strategy,
)
from fedward.strategies.errors import Overflow

OPTIMISERS: list[Strategy] = [
    FedAvgM(learning_rate=0.5),
    FedAdam(),
    FedAdam(bias_correction="flower"),
    FedAdagrad(),
    FedAdagrad(beta_1=0.9),
    FedYogi(),
]
every_optimiser = pytest.mark.parametrize("strategy", OPTIMISERS)


def aggregate_of(mean: dict[str, Any], counted: dict[str, Any] | None = None) -> Aggregate:
    wide = {name: np.asarray(value, np.float64) for name, value in mean.items()}
    return Aggregate(wide, counted or {}, weight=1.0, updates=1)


def values_after(strategy: Strategy, differences: list[float], start: float = 0.0) -> list[float]:
    state = strategy.init({"w": np.array([start])})
    values = []
    for difference in differences:
        state = strategy.apply(state, aggregate_of({"w": [difference]}))
        values.append(float(state.model["w"][0]))
    return values


# ---------------------------------------------------------------- by hand


def test_fedavgm_by_hand() -> None:
    # v: 2, 0.5 * 2 + 4 = 5, 0.5 * 5 + 0 = 2.5; half of each is added to 1
    strategy = FedAvgM(learning_rate=0.5, momentum=0.5)
    assert values_after(strategy, [2.0, 4.0, 0.0], start=1.0) == [2.0, 4.5, 5.75]


def test_fedadagrad_by_hand() -> None:
    # v: 9, 9 + 16 = 25; steps 0.5 * 3 / (3 + 1) and 0.5 * 4 / (5 + 1)
    strategy = FedAdagrad(learning_rate=0.5, tau=1.0)
    assert values_after(strategy, [3.0, 4.0]) == pytest.approx([0.375, 0.375 + 1 / 3], rel=1e-15)
    # with beta_1 = 0.5, m: 1.5, 0.75 + 2 = 2.75
    strategy = FedAdagrad(learning_rate=1.0, tau=1.0, beta_1=0.5)
    assert values_after(strategy, [3.0, 4.0]) == pytest.approx([1.5 / 4, 1.5 / 4 + 2.75 / 6])


def test_fedadam_by_hand() -> None:
    # m: 2, 1 + 1 = 2; v: 0.25 * 16 = 4, 3 + 1 = 4; both steps 1 * 2 / (2 + 1)
    strategy = FedAdam(learning_rate=1.0, beta_1=0.5, beta_2=0.75, tau=1.0)
    assert values_after(strategy, [4.0, 2.0]) == pytest.approx([2 / 3, 4 / 3], rel=1e-15)


def test_flowers_correction_changes_fedadams_rate_alone() -> None:
    # round 1: sqrt(1 - 0.75^2) / (1 - 0.5^2); round 2: sqrt(1 - 0.75^3) / (1 - 0.5^3)
    strategy = FedAdam(
        learning_rate=1.0, beta_1=0.5, beta_2=0.75, tau=1.0, bias_correction="flower"
    )
    first = 2 / 3 * sqrt(0.4375) / 0.75
    second = 2 / 3 * sqrt(0.578125) / 0.875
    assert values_after(strategy, [4.0, 2.0]) == pytest.approx([first, first + second], rel=1e-14)


def test_fedyogi_by_hand() -> None:
    # v: 0 + 0.25 * 16 = 4, 4 + 0.25 * 9 = 6.25, 6.25 - 0.25 * 1 = 6; m: 2, 2.5, 1.75
    strategy = FedYogi(learning_rate=1.0, beta_1=0.5, beta_2=0.75, tau=1.0)
    steps = [2 / 3, 2.5 / 3.5, 1.75 / (sqrt(6.0) + 1)]
    assert values_after(strategy, [4.0, 3.0, 1.0]) == pytest.approx(np.cumsum(steps), rel=1e-15)


def test_fedavgm_without_momentum_at_rate_1_is_fedavg() -> None:
    strategy = FedAvgM(learning_rate=1.0, momentum=0.0)
    assert values_after(strategy, [0.1, -0.7]) == values_after(FedAvg(), [0.1, -0.7])


# ---------------------------------------------------------------- arrays and slots


@every_optimiser
def test_integer_and_local_arrays_are_not_stepped(strategy: Strategy) -> None:
    base = {"local": np.array([1.5], np.float16), "w": np.array([1.0]), "n": np.array(3)}
    state = strategy.init(base)
    for count in (5, 8):
        state = strategy.apply(state, aggregate_of({"w": [1.0]}, {"n": np.array(count)}))
    assert schema_of(state.model) == schema_of(base)
    assert state.model["local"].tobytes() == base["local"].tobytes()
    assert state.model["n"] == 8
    assert {name.partition("/")[2] for name in state.slots} == {"w"}


@every_optimiser
def test_slots_are_float64_in_the_arrays_shapes(strategy: Strategy) -> None:
    base = {
        "s": np.array(1.0, np.float32),
        "e": np.zeros((0, 3), np.float32),
        "b": np.ones((2, 2), ml_dtypes.bfloat16),
    }
    mean = {name: np.ones(array.shape) for name, array in base.items()}
    state = strategy.apply(strategy.init(base), aggregate_of(mean))
    assert schema_of(state.model) == schema_of(base)
    for name, slot in state.slots.items():
        assert (slot.dtype, slot.shape) == (np.float64, base[name.partition("/")[2]].shape)


@every_optimiser
def test_a_run_goes_on_from_stored_slots_with_the_same_bits(strategy: Strategy) -> None:
    rng = np.random.default_rng(5)
    base = {"w": rng.normal(size=(3, 4)).astype(np.float32), "b": np.array(0.5)}
    straight = stored = strategy.init(base)
    for _ in range(5):
        aggregate = aggregate_of({"w": rng.normal(size=(3, 4)), "b": rng.normal()})
        straight = strategy.apply(straight, aggregate)
        stored = strategy.apply(stored, aggregate)
        kept = [decode(b"".join(encode(arrays))) for arrays in (stored.model, stored.slots)]
        stored = ServerState(stored.version, *kept)
    for arrays, others in ((straight.model, stored.model), (straight.slots, stored.slots)):
        assert {n: a.tobytes() for n, a in arrays.items()} == {
            n: a.tobytes() for n, a in others.items()
        }


@every_optimiser
def test_the_old_state_is_left_as_it_was(strategy: Strategy) -> None:
    before = strategy.apply(strategy.init({"w": np.array([1.0])}), aggregate_of({"w": [1.0]}))
    bits = {n: a.tobytes() for n, a in (before.model | before.slots).items()}
    strategy.apply(before, aggregate_of({"w": [2.0]}))
    assert {n: a.tobytes() for n, a in (before.model | before.slots).items()} == bits


@every_optimiser
def test_slots_of_another_model_are_the_callers_mistake(strategy: Strategy) -> None:
    state = strategy.apply(strategy.init({"w": np.zeros(2)}), aggregate_of({"w": [1.0, 1.0]}))
    other = ServerState(state.version, {"w": np.zeros(3)}, state.slots)
    with pytest.raises(ValueError, match=r"slot './w': got float64 \(2,\), expected"):
        strategy.apply(other, aggregate_of({"w": [1.0, 1.0, 1.0]}))


@every_optimiser
def test_a_slot_beyond_float64_is_refused(strategy: Strategy) -> None:
    state = strategy.init({"w": np.zeros(1)})
    with pytest.raises(Overflow, match=r"beyond float64|do not fit"):
        for _ in range(3):
            state = strategy.apply(state, aggregate_of({"w": [1.7e308]}))


@every_optimiser
def test_arrays_larger_than_a_block_are_stepped_whole(strategy: Strategy) -> None:
    size = 2 * BLOCK_ELEMENTS + 3
    mean = np.linspace(-1, 1, size)
    state = strategy.init({"w": np.zeros((1, size))})
    state = strategy.apply(state, aggregate_of({"w": mean.reshape(1, size)}))
    for at in (0, BLOCK_ELEMENTS, size - 1):
        assert values_after(strategy, [mean[at]]) == [state.model["w"][0, at]]


def test_m_is_stored_only_where_beta_1_makes_it_last() -> None:
    def slots(strategy: Strategy) -> set[str]:
        return set(strategy.apply(strategy.init({"w": np.ones(1)}), aggregate_of({"w": [1]})).slots)

    assert slots(FedAdam()) == slots(FedYogi()) == {"m/w", "v/w"}
    assert slots(FedAdagrad()) == slots(FedAdam(beta_1=0.0)) == {"v/w"}
    assert slots(FedAvgM()) == {"v/w"}


@every_optimiser
def test_apps_are_told_nothing(strategy: Strategy) -> None:
    assert strategy.client_config() == {}


# ---------------------------------------------------------------- laws

# float32's range: the squares stay far from the ends of float64
differences = st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=5)


@every_optimiser
@given(st.floats(-1e6, 1e6), st.integers(1, 4))
def test_no_difference_leaves_a_model_at_rest_where_it_is(
    strategy: Strategy, start: float, rounds: int
) -> None:
    assert values_after(strategy, [0.0] * rounds, start=start) == [start] * rounds


@every_optimiser
@given(differences)
def test_the_opposite_differences_give_the_opposite_model(
    strategy: Strategy, means: list[float]
) -> None:
    forth = values_after(strategy, means)
    back = values_after(strategy, [-mean for mean in means])
    assert [-value for value in back] == forth


@given(differences, st.integers(-8, 8))
def test_fedavgm_scales_with_the_differences(means: list[float], power: int) -> None:
    # By powers of two, so that the law holds to the bit
    scaled = values_after(FedAvgM(), [mean * 2.0**power for mean in means])
    assert scaled == [value * 2.0**power for value in values_after(FedAvgM(), means)]


@pytest.mark.parametrize("kind", [FedAdam, FedAdagrad, FedYogi])
@given(means=differences, power=st.integers(-8, 8))
def test_adaptive_steps_do_not_change_with_the_unit_when_tau_has_it_too(
    kind: Any, means: list[float], power: int
) -> None:
    scale = 2.0**power
    scaled = values_after(kind(tau=1e-3 * scale), [mean * scale for mean in means])
    assert scaled == values_after(kind(tau=1e-3), means)


@given(differences)
def test_an_adaptive_step_is_bounded_by_the_rate(means: list[float]) -> None:
    # |d| <= sqrt(v) for Adagrad, so no step is longer than the rate
    values = [0.0, *values_after(FedAdagrad(learning_rate=0.25), means)]
    assert max(np.abs(np.diff(values))) <= 0.25
