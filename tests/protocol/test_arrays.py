"""Schemas, classes, and the update that a site forms."""

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fedward.protocol.arrays import (
    BLOCK_ELEMENTS,
    ArraySpec,
    blocks,
    classify,
    require_finite,
    require_schema,
    schema_of,
    subtract,
    update_schema,
)
from fedward.protocol.documents import ArrayClass, ArrayRules
from fedward.protocol.errors import InvalidArrays, NonFinite, SchemaMismatch

BF16 = ml_dtypes.bfloat16
AVERAGED, COUNTED, LOCAL = ArrayClass.AVERAGED, ArrayClass.COUNTED, ArrayClass.LOCAL


def model() -> dict[str, Any]:
    return {
        "fc.weight": np.array([[1.0, 2.0]], np.float32),
        "bn.running_mean": np.array([0.5], np.float32),
        "bn.num_batches_tracked": np.array(3, np.int64),
        "mask": np.array([True, False]),
        "half": np.array([1.0], BF16),
    }


def test_arrays_are_classified_by_dtype_and_by_the_plans_patterns() -> None:
    classes = classify(schema_of(model()), ArrayRules(local=["bn.running_*", "ma?k"]))
    assert classes == {
        "fc.weight": AVERAGED,
        "bn.running_mean": LOCAL,
        "bn.num_batches_tracked": COUNTED,
        "mask": LOCAL,
        "half": AVERAGED,
    }


def test_an_update_has_all_but_the_local_arrays_in_the_models_order() -> None:
    schema = schema_of(model())
    sent = update_schema(schema, classify(schema, ArrayRules(local=["*running*"])))
    assert [spec.name for spec in sent] == ["fc.weight", "bn.num_batches_tracked", "mask", "half"]


def test_patterns_that_match_nothing_are_refused_all_at_once() -> None:
    rules = ArrayRules(local=["fc.*", "bn.Running_mean", "conv*"])
    with pytest.raises(InvalidArrays) as caught:
        classify(schema_of(model()), rules)
    assert str(caught.value) == (
        "local pattern 'bn.Running_mean' matches no array; local pattern 'conv*' matches no array"
    )


def test_a_model_that_is_local_as_a_whole_is_refused() -> None:
    with pytest.raises(InvalidArrays, match="got 5 arrays, all local"):
        classify(schema_of(model()), ArrayRules(local=["*"]))


def test_an_update_is_the_difference_of_floats_and_the_trained_value_of_counters() -> None:
    trained: dict[str, Any] = {
        "fc.weight": np.array([[1.5, -2.0]], np.float32),
        "bn.running_mean": np.array([9.0], np.float32),
        "bn.num_batches_tracked": np.array(5, np.int64),
        "mask": np.array([False, False]),
        "half": np.array([1.25], BF16),
    }
    classes = classify(schema_of(model()), ArrayRules(local=["bn.running_mean"]))
    update = subtract(trained, model(), classes)
    assert {name: array.tolist() for name, array in update.items()} == {
        "fc.weight": [[0.5, -4.0]],
        "bn.num_batches_tracked": 5,
        "mask": [False, False],
        "half": [0.25],
    }
    assert schema_of(update) == update_schema(schema_of(model()), classes)


@pytest.mark.parametrize("dtype", [np.float16, BF16])
def test_half_precision_differences_are_formed_in_float32(dtype: Any) -> None:
    rng = np.random.default_rng(1)
    trained, base = rng.normal(size=(2, 1000)).astype(dtype)
    got = subtract({"w": trained}, {"w": base}, {"w": AVERAGED})["w"]
    wide = trained.astype(np.float32) - base.astype(np.float32)
    assert got.tobytes() == wide.astype(dtype).tobytes()


def test_the_order_of_an_update_is_the_received_models() -> None:
    trained: dict[str, Any] = dict(reversed(model().items()))
    update = subtract(trained, model(), classify(schema_of(model()), ArrayRules()))
    assert list(update) == list(model())


def test_a_difference_of_a_0_d_array_stays_an_array() -> None:
    value = np.array(2.0, np.float32)
    update = subtract({"s": value}, {"s": value}, {"s": AVERAGED})
    assert isinstance(update["s"], np.ndarray)
    assert update["s"].shape == ()


def test_training_that_changes_a_dtype_is_refused() -> None:
    trained = model() | {"fc.weight": np.array([[1.0, 2.0]], np.float64)}
    expected = "array 'fc.weight': got float64 (1, 2), expected float32 (1, 2)"
    with pytest.raises(SchemaMismatch, match=re.escape(expected)):
        subtract(trained, model(), classify(schema_of(model()), ArrayRules()))


def test_a_difference_that_overflows_is_seen_by_the_finite_check() -> None:
    top = np.array([3e38, 1.0], np.float32)
    update = subtract({"w": top}, {"w": -top}, {"w": AVERAGED})
    with pytest.raises(NonFinite, match="array 'w': 1 of 2 values"):
        require_finite(update)


def test_a_schema_that_differs_is_refused_naming_got_and_expected() -> None:
    expected = (ArraySpec("w", "float32", (3,)), ArraySpec("b", "float32", ()))
    got = (ArraySpec("w", "float32", (1,)), ArraySpec("c", "int8", (2, 2)))
    with pytest.raises(SchemaMismatch) as caught:
        require_schema(got, expected)
    assert str(caught.value) == (
        "array 'w': got float32 (1,), expected float32 (3,); "
        "array 'b': got none, expected float32 (); array 'c': got int8 (2, 2), expected none"
    )
    assert caught.value.reason == "schema-mismatch"


def test_a_schema_may_come_in_another_order_but_not_name_an_array_twice() -> None:
    a, b = ArraySpec("a", "int8", ()), ArraySpec("b", "int8", ())
    require_schema((b, a), (a, b))
    with pytest.raises(SchemaMismatch, match="named twice"):
        require_schema((a, b, b), (a, b))


def test_a_long_list_of_faults_is_cut() -> None:
    expected = tuple(ArraySpec("x" * 500 + str(n), "int8", ()) for n in range(25))
    with pytest.raises(SchemaMismatch, match="; and 15 more") as caught:
        require_schema((), expected)
    assert len(str(caught.value)) < 4000


def test_every_dtype_of_float_is_checked_for_nan_and_infinity() -> None:
    bad = [1.0, np.nan, np.inf, -np.inf]
    values = {n: np.array(bad, n) for n in ("float16", "float32", "float64")}
    values |= {"bfloat16": np.array(bad, BF16), "int": np.array([1]), "bool": np.array([True])}
    with pytest.raises(NonFinite) as caught:
        require_finite(values)
    assert str(caught.value) == "; ".join(
        f"array '{n}': 3 of 4 values are NaN or infinite"
        for n in ("float16", "float32", "float64", "bfloat16")
    )
    assert caught.value.reason == "non-finite"


def test_finite_arrays_of_every_shape_pass() -> None:
    require_finite(model() | {"0-d": np.array(1.0), "empty": np.zeros((0, 3))})


def test_bad_values_are_counted_over_all_blocks() -> None:
    values = np.zeros((3, BLOCK_ELEMENTS), np.float32)
    values[0, 0] = values[1, 2] = values[2, -1] = np.nan
    for array in (values, values.T, values[:, ::-1]):
        with pytest.raises(NonFinite, match=f"3 of {3 * BLOCK_ELEMENTS}"):
            require_finite({"w": array})


def test_blocks_of_dense_arrays_are_views() -> None:
    for dense in (np.zeros((3, BLOCK_ELEMENTS // 2)), np.zeros((3, BLOCK_ELEMENTS // 2)).T):
        pieces = list(blocks(dense))
        assert [piece.size for piece in pieces] == [BLOCK_ELEMENTS, BLOCK_ELEMENTS // 2]
        assert all(np.shares_memory(piece, dense) for piece in pieces)
