from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fedward.strategies.metrics import average_metrics


def test_scalars_and_lists_are_averaged_by_hand() -> None:
    replies: list[tuple[float, dict[str, Any]]] = [
        (100.0, {"loss": 1.0, "mean": [1, 2.0], "num-examples": 100}),
        (300.0, {"loss": 2.0, "mean": [3, 0.0], "num-examples": 300}),
    ]
    got = average_metrics(replies)
    assert got == {"loss": 1.75, "mean": [2.5, 0.5], "num-examples": 400}
    assert list(got) == ["loss", "mean", "num-examples"]


def test_metrics_that_not_every_reply_has_in_the_same_shape_are_left_out() -> None:
    first: dict[str, Any] = {
        "only-here": 1.0,
        "longer": [1.0, 2.0],
        "mixed": 1.0,
        "empty": [],
        "a": 2,
    }
    second: dict[str, Any] = {"longer": [1.0], "mixed": [1.0], "empty": [], "a": 4}
    assert average_metrics([(1.0, first), (1.0, second)]) == {"a": 3.0, "empty": []}


def test_equal_values_stay_exactly_equal() -> None:
    replies: list[tuple[float, dict[str, Any]]] = [(3.0, {"auc": 0.1})] * 7
    assert average_metrics(replies) == {"auc": 0.1}


def test_numbers_of_examples_are_summed() -> None:
    def total(*values: Any) -> Any:
        return average_metrics([(1.0, {"num-examples": value}) for value in values])

    assert total(1, 2, 3) == {"num-examples": 6}
    assert total(1, 2.5) == {"num-examples": 3.5}
    assert total(1, [2]) == {}


def test_no_weight_gives_no_mean() -> None:
    replies: list[tuple[float, dict[str, Any]]] = [(0.0, {"loss": 1.0, "num-examples": 0})] * 2
    assert average_metrics(replies) == {"num-examples": 0}
    assert average_metrics([]) == {}


def test_values_that_are_not_finite_in_float64_are_left_out() -> None:
    replies: list[tuple[float, dict[str, Any]]] = [
        (1.0, {"huge": 10**400, "nan": float("nan"), "list": [1.0, float("inf")], "ok": 1})
    ]
    assert average_metrics(replies) == {"ok": 1.0}


def test_large_values_and_weights_do_not_overflow() -> None:
    got = average_metrics([(1e15, {"x": 1e308}), (1e15, {"x": 1e308})])
    assert got == {"x": 1e308}


@given(st.lists(st.tuples(st.floats(0.1, 1e6), st.floats(-1e300, 1e300)), min_size=1, max_size=6))
def test_a_mean_lies_between_the_least_and_the_largest_value(
    replies: list[tuple[float, float]],
) -> None:
    got = average_metrics([(weight, {"x": value}) for weight, value in replies])["x"]
    values = [value for _, value in replies]
    assert isinstance(got, float)
    assert min(values) <= got <= max(values)


numbers = st.floats(-1e9, 1e9)
reply = st.tuples(
    st.floats(0, 1e6),
    st.fixed_dictionaries({"a": numbers, "b": st.lists(numbers, min_size=2, max_size=2)}),
)


@given(st.lists(reply, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_the_order_of_the_replies_makes_no_difference(
    replies: list[tuple[float, dict[str, Any]]], rng: Any
) -> None:
    shuffled = list(replies)
    rng.shuffle(shuffled)
    assert average_metrics(shuffled) == average_metrics(replies)


def test_sums_and_means_beyond_float64_are_left_out_and_raise_nothing() -> None:
    huge = 1.7e308
    assert average_metrics([(1.0, {"num-examples": huge}), (1.0, {"num-examples": huge})]) == {}
    found = average_metrics([(1.0, {"loss": huge}), (1.0, {"loss": huge}), (1.0, {"loss": huge})])
    assert found in ({}, {"loss": huge})
