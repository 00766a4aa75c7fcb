import ml_dtypes
import numpy as np
import pytest

from fedward.protocol.arrays import schema_of
from fedward.protocol.documents import WeightRules
from fedward.protocol.errors import NonFinite, SchemaMismatch
from fedward.strategies.errors import WeightInvalid, WeightMissing, WeightOverCap, WeightRefused
from fedward.strategies.gate import check_update, resolve_weight

EXPECTED = schema_of({"w": np.zeros(3, np.float32), "n": np.array(0)})


def test_an_update_that_fits_passes() -> None:
    check_update({"w": np.ones(3, np.float32), "n": np.array(4)}, EXPECTED)


def test_one_nan_is_refused_whatever_the_weight_is_naming_the_tensor() -> None:
    update = {"w": np.array([1, np.nan, 3], np.float32), "n": np.array(4)}
    with pytest.raises(NonFinite, match="array 'w': 1 of 3 values are NaN or infinite") as caught:
        check_update(update, EXPECTED)
    assert caught.value.reason == "non-finite"


def test_a_nan_in_bfloat16_is_refused() -> None:
    values = {"w": np.array([np.nan, np.inf, 1], ml_dtypes.bfloat16)}
    with pytest.raises(NonFinite, match="2 of 3"):
        check_update(values, schema_of(values))


def test_another_shape_is_refused_with_got_and_expected() -> None:
    update = {"w": np.ones(1, np.float32), "n": np.array(4)}
    with pytest.raises(SchemaMismatch, match=r"got float32 \(1,\), expected float32 \(3,\)"):
        check_update(update, EXPECTED)


def test_float64_where_float32_is_expected_is_refused_by_dtype() -> None:
    update = {"w": np.array([1e300, 0, 0]), "n": np.array(4)}
    with pytest.raises(SchemaMismatch, match=r"got float64 \(3,\), expected float32 \(3,\)"):
        check_update(update, EXPECTED)


def test_missing_and_foreign_arrays_are_refused_together() -> None:
    with pytest.raises(SchemaMismatch, match=r"'n': got none.*'x': got bool \(\), expected none"):
        check_update({"w": np.ones(3, np.float32), "x": np.array(True)}, EXPECTED)


@pytest.mark.parametrize("stated", [0, 0.0, 1, 2.5, 10_000_000])
def test_a_stated_number_of_examples_is_the_weight(stated: float) -> None:
    got = resolve_weight(stated, WeightRules())
    assert got == stated
    assert isinstance(got, float)


@pytest.mark.parametrize("by", ["num-examples", "uniform"])
@pytest.mark.parametrize("stated", [-1, -0.001, float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_negative_or_not_finite_is_refused(stated: float, by: str) -> None:
    rules = WeightRules.model_validate({"by": by})
    with pytest.raises(
        WeightInvalid, match=f"got {stated}, expected a finite number >= 0"
    ) as caught:
        resolve_weight(stated, rules)
    assert caught.value.reason == "weight-invalid"
    assert isinstance(caught.value, WeightRefused)


@pytest.mark.parametrize("by", ["num-examples", "uniform"])
def test_a_number_over_the_cap_is_refused_showing_the_cap(by: str) -> None:
    rules = WeightRules.model_validate({"by": by, "cap": 1000})
    assert resolve_weight(1000, rules) in {1.0, 1000.0}
    with pytest.raises(WeightOverCap, match=r"got 1e\+18, expected at most 1000.0") as caught:
        resolve_weight(1e18, rules)
    assert caught.value.reason == "weight-over-cap"


def test_a_missing_number_is_refused_where_the_plan_has_no_fallback() -> None:
    with pytest.raises(WeightMissing, match="got none") as caught:
        resolve_weight(None, WeightRules())
    assert caught.value.reason == "weight-missing"


def test_a_missing_number_takes_the_plans_fallback() -> None:
    assert resolve_weight(None, WeightRules(missing=50)) == 50.0
    assert resolve_weight(None, WeightRules(missing=0)) == 0.0


def test_a_fallback_over_the_cap_is_refused_too() -> None:
    with pytest.raises(WeightOverCap, match="got 50"):
        resolve_weight(None, WeightRules(missing=50, cap=10))


def test_uniform_weights_are_one_but_for_sites_without_examples() -> None:
    rules = WeightRules(by="uniform")
    assert [resolve_weight(n, rules) for n in (None, 1, 700, 0)] == [1.0, 1.0, 1.0, 0.0]
