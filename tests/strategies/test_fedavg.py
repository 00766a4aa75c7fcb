"""From an aggregate to the next version: by hand, by exact arithmetic, and against Flower."""

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedward.protocol.arrays import BLOCK_ELEMENTS, classify, schema_of, subtract, update_schema
from fedward.protocol.documents import ArrayRules
from fedward.strategies import Aggregate, Combiner, FedAvg, FedProx, ServerState, Strategy
from fedward.strategies.errors import Overflow

BF16 = ml_dtypes.bfloat16


def aggregate_of(mean: dict[str, Any], counted: dict[str, Any] | None = None) -> Aggregate:
    wide = {name: np.asarray(value, np.float64) for name, value in mean.items()}
    return Aggregate(wide, counted or {}, weight=1.0, updates=1)


def one_round(
    base: dict[str, Any], trained: list[tuple[dict[str, Any], float]], strategy: Strategy
) -> ServerState:
    """What a site and the coordinator do, without anything in between."""
    schema = schema_of(base)
    classes = classify(schema, ArrayRules())
    combiner = Combiner(update_schema(schema, classes), classes, counted="largest")
    for arrays, weight in trained:
        combiner.add(subtract(arrays, base, classes), weight=weight)
    return strategy.apply(strategy.init(base), combiner.result())


@pytest.mark.parametrize("strategy", [FedAvg(), FedProx(proximal_mu=0.1)])
def test_a_round_by_hand(strategy: Strategy) -> None:
    base = {"w": np.array([1.0, 2.0], np.float32), "n": np.array(3)}
    first = {"w": np.array([2.0, 2.0], np.float32), "n": np.array(5)}
    second = {"w": np.array([5.0, -2.0], np.float32), "n": np.array(4)}
    state = one_round(base, [(first, 300.0), (second, 100.0)], strategy)
    # w0: 1 + (300 * 1 + 100 * 4) / 400 = 2.75; w1: 2 + (0 + 100 * -4) / 400 = 1
    assert state.model["w"].tolist() == [2.75, 1.0]
    assert state.model["w"].dtype == np.float32
    assert state.model["n"].tolist() == 5
    assert state.model["n"].dtype == np.int64
    assert (state.version, state.slots) == (1, {})


def test_the_old_state_is_left_as_it_was() -> None:
    base = {"w": np.array([1.0]), "n": np.array(3)}
    state = FedAvg().init(base)
    after = FedAvg().apply(state, aggregate_of({"w": [1.0]}, {"n": np.array(4)}))
    values = [[array.tolist() for array in s.model.values()] for s in (state, after)]
    assert (state.version, values[0]) == (0, [[1.0], 3])
    assert (after.version, values[1]) == (1, [[2.0], 4])


def test_arrays_without_part_in_the_aggregate_keep_their_bits_and_place() -> None:
    base = {"local": np.array([1.5], BF16), "w": np.array([1.0]), "n": np.array(3)}
    after = FedAvg().apply(FedAvg().init(base), aggregate_of({"w": [1.0]}))
    assert list(after.model) == ["local", "w", "n"]
    assert after.model["local"].tobytes() == base["local"].tobytes()
    assert after.model["n"] == 3


def test_0_d_and_empty_arrays_return_with_their_dtypes_and_shapes() -> None:
    base = {"s": np.array(1.0, np.float16), "e": np.zeros((0, 3), BF16), "n": np.array(7, np.uint8)}
    state = one_round(base, [(base, 1.0)], FedAvg())
    assert schema_of(state.model) == schema_of(base)


def test_arrays_larger_than_a_block_are_moved_whole() -> None:
    base = {"w": np.arange(2 * BLOCK_ELEMENTS + 3, dtype=np.float32)}
    after = FedAvg().apply(FedAvg().init(base), aggregate_of({"w": np.ones(base["w"].size)}))
    assert np.array_equal(after.model["w"], base["w"] + 1)


@pytest.mark.parametrize(
    ("dtype", "largest"),
    [(np.float16, 65504.0), (BF16, 3.38e38), (np.float32, 3.4e38), (np.float64, 1.7e308)],
)
def test_a_value_that_does_not_fit_the_dtype_is_refused(dtype: Any, largest: float) -> None:
    top = np.array([largest, 1.0], dtype)
    with pytest.raises(Overflow, match="array 'w': 1 of 2 new values do not fit") as caught:
        FedAvg().apply(FedAvg().init({"w": top}), aggregate_of({"w": top.astype(np.float64)}))
    assert caught.value.reason == "overflow"


@pytest.mark.parametrize("name", ["other", "w"])
def test_an_aggregate_of_another_model_is_the_callers_mistake(name: str) -> None:
    state = FedAvg().init({"w": np.zeros(3)})
    with pytest.raises(ValueError, match=f"aggregate of '{name}': got shape"):
        FedAvg().apply(state, aggregate_of({name: [1.0]}))


def nearest(exact: Fraction, dtype: Any) -> set[float]:
    """The value of `dtype` nearest to `exact`; of two equally near ones that with an even bit."""
    guess = np.array(float(exact), dtype)
    around = [guess, *(np.nextafter(guess, np.array(far, dtype)) for far in (np.inf, -np.inf))]
    distance = {float(v): abs(Fraction(float(v)) - exact) for v in around if np.isfinite(v)}
    best = [value for value, far in distance.items() if far == min(distance.values())]
    width = np.uint16 if np.dtype(dtype).itemsize == 2 else np.uint32
    even = [v for v in best if int(np.array(v, dtype).view(width)) % 2 == 0]
    return set(best if len(best) == 1 else even)


@pytest.mark.parametrize("dtype", [BF16, np.float16, np.float32])
@given(base=st.floats(-100, 100, width=16), step=st.floats(-100, 100), shift=st.integers(-60, 0))
def test_a_new_value_is_the_wide_sum_rounded_once(
    dtype: Any, base: float, step: float, shift: int
) -> None:
    start = np.array([base], dtype)
    wide = float(start[0]) + step * 2.0**shift
    after = FedAvg().apply(FedAvg().init({"w": start}), aggregate_of({"w": [step * 2.0**shift]}))
    assert float(after.model["w"][0]) in nearest(Fraction(wide), dtype)


@pytest.mark.parametrize("beyond", [2.0**-40, -(2.0**-40)])
def test_a_value_just_beside_a_bfloat16_tie_goes_to_the_nearer_side(beyond: float) -> None:
    # 1 and 1 + 2**-7 are neighbours; a cast by way of float32 would round both cases to 1
    base = {"w": np.array([1.0], BF16)}
    after = FedAvg().apply(FedAvg().init(base), aggregate_of({"w": [2.0**-8 + beyond]}))
    assert float(after.model["w"][0]) == (1.0078125 if beyond > 0 else 1.0)


def test_no_difference_leaves_the_model_as_it_is() -> None:
    rng = np.random.default_rng(3)
    base = {d: rng.normal(size=50).astype(d) for d in ("float16", "float32", "float64")}
    base |= {"bfloat16": rng.normal(size=50).astype(BF16)}
    state = one_round(base, [(base, 10.0), (base, 20.0)], FedAvg())
    assert {n: a.tobytes() for n, a in state.model.items()} == {
        n: a.tobytes() for n, a in base.items()
    }


def test_the_app_is_told_mu_under_flowers_key() -> None:
    assert FedProx(proximal_mu=0.25).client_config() == {"proximal-mu": 0.25}
    assert FedProx(proximal_mu=0.25).parameters == {"proximal-mu": 0.25}
    assert (FedAvg().client_config(), FedAvg().parameters) == ({}, {})
    assert (FedAvg().name, FedProx(proximal_mu=1.0).name) == ("fedavg", "fedprox")
