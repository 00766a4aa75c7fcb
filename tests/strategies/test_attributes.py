"""An object's attributes as named arrays."""

from typing import Any

import numpy as np

from fedward.protocol.arrays import decode, encode
from fedward.strategies.attributes import NamedArrays, changed, flatten, restore


def test_what_can_be_carried_comes_back_through_a_file() -> None:
    attributes: dict[str, Any] = {
        "rate": 0.25,
        "round": 7,
        "ready": True,
        "norms": [1.5, 2.5],
        "last": np.arange(3, dtype=np.float32),
        "momentum": [np.ones(2), np.zeros((), np.int8)],
        "moments": {"layer/w": np.ones((2, 2)), "b": np.zeros(0)},
        "current": NamedArrays({"w": np.array([3.0])}),
    }
    stored = decode(b"".join(encode(flatten(attributes))))
    back = restore(stored)
    assert list(back) == list(attributes)
    assert [type(value) for value in back.values()] == [type(v) for v in attributes.values()]
    assert str(back) == str(attributes)


def test_what_cannot_be_carried_is_left_out() -> None:
    attributes: dict[str, Any] = {
        "name": "x",
        "nothing": None,
        "call": print,
        "texts": ["a"],
        "mixed": [1, 2.0],
        "empty": [],
        "huge": 2**70,
        "letters": np.array(["a"]),
        "nested": {"a": {"b": np.ones(1)}},
    }
    assert flatten(attributes) == {}


def test_an_attribute_that_changed_in_part_is_returned_whole() -> None:
    before = flatten({"m": {"a": np.ones(1), "b": np.ones(1)}, "rate": 1.0})
    now = flatten({"m": {"a": np.ones(1), "b": np.zeros(1)}, "rate": 1.0})
    assert list(changed(now, before)) == ["m/dict/a", "m/dict/b"]
    assert changed(before, before) == {}
    assert list(changed(flatten({"rate": 1}), flatten({"rate": 1.0}))) == ["rate/number"]


def test_scalars_that_numpy_made_of_0_d_arrays_count_as_arrays() -> None:
    # Arithmetic on 0-d arrays gives np.float64, as in Flower's FedAvgM
    stored = flatten({"list": [np.ones(2), np.float64(3.0)], "dict": {"s": np.float32(2.0)}})
    back = restore(stored)
    assert [item.tolist() for item in back["list"]] == [[1.0, 1.0], 3.0]
    assert (back["dict"]["s"].dtype, back["dict"]["s"]) == (np.float32, 2.0)


def test_restored_arrays_do_not_share_the_files_memory() -> None:
    back = restore(decode(b"".join(encode(flatten({"m": np.ones(2)})))))
    back["m"] += 1
    assert back["m"].tolist() == [2.0, 2.0]
