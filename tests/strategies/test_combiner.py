"""The weighted mean by hand, the classes of arrays, and the order of addition."""

import tracemalloc
from typing import Any, Literal

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedward.protocol.arrays import BLOCK_ELEMENTS, classify, schema_of
from fedward.protocol.documents import ArrayClass, ArrayRules
from fedward.protocol.errors import SchemaMismatch
from fedward.strategies import Aggregate, Combiner
from fedward.strategies.errors import NoData, Overflow, WeightInvalid

BF16 = ml_dtypes.bfloat16


def combiner_for(
    arrays: dict[str, Any],
    *,
    local: list[str] | None = None,
    counted: Literal["largest", "keep"] = "largest",
) -> Combiner:
    schema = schema_of(arrays)
    return Combiner(schema, classify(schema, ArrayRules(local=local or [])), counted=counted)


def combined(
    updates: list[tuple[dict[str, Any], float]], counted: Literal["largest", "keep"] = "largest"
) -> Aggregate:
    combiner = combiner_for(updates[0][0], counted=counted)
    for update, weight in updates:
        combiner.add(update, weight=weight)
    return combiner.result()


def test_the_mean_is_weighted_by_hand() -> None:
    # (100 * 1 + 300 * 2) / 400 = 1.75 and (100 * -2 + 300 * 0) / 400 = -0.5
    got = combined(
        [
            ({"w": np.array([1.0, -2.0], np.float32)}, 100),
            ({"w": np.array([2.0, 0.0], np.float32)}, 300),
        ]
    )
    assert got.mean["w"].tolist() == [1.75, -0.5]
    assert got.mean["w"].dtype == np.float64
    assert (got.weight, got.updates) == (400.0, 2)


def test_weights_that_float32_cannot_hold_count_exactly() -> None:
    heavy = 2.0**24 + 1
    updates = [({"w": np.ones(1, np.float32)}, heavy), ({"w": np.zeros(1, np.float32)}, 1.0)]
    assert combined(updates).mean["w"].tolist() == [heavy / (heavy + 1)]


def test_an_absent_site_is_not_divided_by() -> None:
    # sizes 100, 200, 700, the last absent: (100 * 3 + 200 * 6) / 300 = 5
    updates = [({"w": np.array([3.0])}, 100.0), ({"w": np.array([6.0])}, 200.0)]
    assert combined(updates).mean["w"].tolist() == [5.0]


def test_two_updates_without_examples_are_no_data() -> None:
    combiner = combiner_for({"w": np.ones(1)})
    for _ in range(2):
        combiner.add({"w": np.ones(1)}, weight=0.0)
    with pytest.raises(NoData, match="got 2 updates of total weight 0") as caught:
        combiner.result()
    assert caught.value.reason == "no-data"


def test_no_update_at_all_is_no_data() -> None:
    with pytest.raises(NoData, match="got 0 updates"):
        combiner_for({"w": np.ones(1)}).result()


def test_an_update_of_weight_zero_changes_nothing_but_the_number_of_updates() -> None:
    one = {"w": np.array([2.0]), "n": np.array(3)}
    zero = {"w": np.array([50.0]), "n": np.array(9)}
    got = combined([(zero, 0.0), (one, 4.0), (zero, 0.0)])
    assert (got.mean["w"].tolist(), got.counted["n"].tolist()) == ([2.0], 3)
    assert (got.weight, got.updates) == (4.0, 3)


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf"), -float("inf")])
def test_a_weight_that_is_negative_or_not_finite_is_refused(weight: float) -> None:
    combiner = combiner_for({"w": np.ones(1)})
    combiner.add({"w": np.ones(1)}, weight=3.0)
    with pytest.raises(WeightInvalid, match=f"got {weight}"):
        combiner.add({"w": np.full(1, 9.0)}, weight=weight)
    assert combiner.result().mean["w"].tolist() == [1.0]


def test_int64_counters_keep_their_dtype_and_take_the_largest() -> None:
    got = combined(
        [({"n": np.array(3)}, 1.0), ({"n": np.array(5)}, 1.0), ({"n": np.array(4)}, 9.0)]
    )
    assert got.counted["n"].dtype == np.int64
    assert got.counted["n"].shape == ()
    assert got.counted["n"] == 5
    assert got.mean == {}


def test_large_counters_are_exact() -> None:
    top = 2**63 - 1  # float64 cannot tell it from its neighbours
    got = combined([({"n": np.array([top - 1])}, 1.0), ({"n": np.array([top])}, 1.0)])
    assert got.counted["n"].tolist() == [top]


def test_boolean_buffers_stay_boolean() -> None:
    got = combined(
        [({"b": np.array([True, False, False])}, 1.0), ({"b": np.array([False, False, True])}, 1.0)]
    )
    assert got.counted["b"].dtype == np.bool_
    assert got.counted["b"].tolist() == [True, False, True]


def test_counted_arrays_are_left_out_where_the_plan_keeps_them() -> None:
    arrays = {"w": np.array([1.0]), "n": np.array(3), "b": np.array([True])}
    assert combined([(arrays, 1.0)], counted="keep").counted == {}


def test_the_updates_own_counters_are_not_changed() -> None:
    first = {"n": np.array([3])}
    first["n"].setflags(write=False)
    got = combined([(first, 1.0), ({"n": np.array([5])}, 1.0)])
    assert (first["n"].tolist(), got.counted["n"].tolist()) == ([3], [5])


def test_local_arrays_are_expected_neither_in_the_update_nor_in_the_result() -> None:
    combiner = combiner_for({"w": np.ones(1), "local.w": np.ones(3)}, local=["local.*"])
    combiner.add({"w": np.ones(1)}, weight=1.0)
    with pytest.raises(SchemaMismatch, match=r"array 'local.w': got float64 \(3,\), expected none"):
        combiner.add({"w": np.ones(1), "local.w": np.ones(3)}, weight=1.0)
    assert list(combiner.result().mean) == ["w"]


@pytest.mark.parametrize("other", [np.zeros(1, "f4"), np.zeros((), "f4"), np.zeros((3, 1), "f4"),
                                   np.zeros(3, "f8"), np.zeros(3, "f2")])  # fmt: skip
def test_another_shape_or_dtype_is_refused_and_never_broadcast(other: Any) -> None:
    combiner = combiner_for({"w": np.ones(3, np.float32)})
    combiner.add({"w": np.ones(3, np.float32)}, weight=1.0)
    with pytest.raises(SchemaMismatch, match=r"array 'w': got .* expected float32 \(3,\)"):
        combiner.add({"w": other}, weight=1.0)
    result = combiner.result()
    assert (result.mean["w"].tolist(), result.updates) == ([1.0, 1.0, 1.0], 1)


def test_0_d_and_empty_arrays_keep_their_shapes() -> None:
    arrays = {"s": np.array(2.0, np.float32), "e": np.zeros((0, 3), np.float32), "n": np.array(1)}
    got = combined([(arrays, 1.0), (arrays, 3.0)])
    assert {name: array.shape for name, array in got.mean.items()} == {"s": (), "e": (0, 3)}
    assert got.mean["s"] == 2.0


@pytest.mark.parametrize("dtype", [BF16, np.float16, np.float32])
def test_narrow_floats_are_summed_wide(dtype: Any) -> None:
    # In bfloat16 or float16, 2048 + 1 is 2048: the ones would be lost
    updates = [({"w": np.array([2048], dtype)}, 1.0)] + [({"w": np.array([1], dtype)}, 1.0)] * 3
    assert combined(updates).mean["w"].tolist() == [(2048 + 3) / 4]


def test_arrays_larger_than_a_block_are_added_whole() -> None:
    size = 2 * BLOCK_ELEMENTS + 3
    values = np.arange(size, dtype=np.float32).reshape(1, size)
    got = combined([({"w": values}, 1.0), ({"w": 3 * values}, 1.0)])
    assert np.array_equal(got.mean["w"], 2.0 * values.astype(np.float64))


def test_strided_and_fortran_arrays_are_added_by_position() -> None:
    values = np.arange(6.0).reshape(2, 3)
    got = combined([({"w": np.asfortranarray(values)}, 1.0), ({"w": values.T.copy().T}, 1.0)])
    assert np.array_equal(got.mean["w"], values)


def test_a_sum_beyond_float64_is_refused() -> None:
    combiner = combiner_for({"w": np.ones(2)})
    combiner.add({"w": np.array([1e308, 1.0])}, weight=100.0)
    with pytest.raises(Overflow, match="beyond float64: array 'w': 1 of 2"):
        combiner.result()


def test_nothing_is_added_after_the_result() -> None:
    combiner = combiner_for({"w": np.ones(1)})
    combiner.add({"w": np.ones(1)}, weight=1.0)
    combiner.result()
    with pytest.raises(ValueError, match="has been taken"):
        combiner.add({"w": np.ones(1)}, weight=1.0)


finite = st.floats(-1e6, 1e6, width=32)
replies = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=4),
    st.tuples(st.lists(finite, min_size=4, max_size=4), st.integers(0, 10_000)),
    min_size=1,
    max_size=8,
).filter(lambda sites: any(weight for _, weight in sites.values()))


@given(replies, st.randoms(use_true_random=False))
def test_any_order_of_arrival_gives_the_same_bits_when_added_by_site(
    sites: dict[str, tuple[list[float], int]], rng: Any
) -> None:
    def run(arrived: list[str]) -> bytes:
        store = {site: sites[site] for site in arrived}
        updates = [
            ({"w": np.array(store[site][0], np.float32)}, float(store[site][1]))
            for site in sorted(store)
        ]
        return combined(updates).mean["w"].tobytes()

    shuffled = list(sites)
    rng.shuffle(shuffled)
    assert run(shuffled) == run(list(sites))


@given(replies)
def test_the_mean_is_numpys_weighted_average(sites: dict[str, tuple[list[float], int]]) -> None:
    values = np.array([v for v, _ in sites.values()], np.float32).astype(np.float64)
    weights = [float(w) for _, w in sites.values()]
    updates = [({"w": v.astype(np.float32)}, w) for v, w in zip(values, weights, strict=True)]
    expected = np.average(values, axis=0, weights=weights)
    assert np.allclose(combined(updates).mean["w"], expected, rtol=1e-12, atol=1e-6)


def test_memory_does_not_grow_with_the_number_of_updates() -> None:
    update = {"w": np.ones(8 * BLOCK_ELEMENTS, np.float32), "b": np.ones(1, np.float32)}
    combiner = combiner_for(update)
    combiner.add(update, weight=1.0)
    tracemalloc.start()
    for _ in range(20):
        combiner.add(update, weight=1.0)
    combiner.result()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * BLOCK_ELEMENTS  # bytes: less than one block of float32


def test_classes_of_the_whole_model_are_understood() -> None:
    schema = schema_of({"w": np.ones(1), "n": np.array(1)})
    classes = {"w": ArrayClass.LOCAL, "n": ArrayClass.COUNTED}
    combiner = Combiner(schema, classes, counted="largest")
    combiner.add({"n": np.array(7)}, weight=1.0)
    assert combiner.result().counted == {"n": 7}
