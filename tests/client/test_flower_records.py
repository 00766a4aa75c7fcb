"""Lazy arrays against Flower's own, and state on disk.  `make_records_lazy` is tested in the
worker's own process (test_worker.py): it changes Flower for good."""

from io import BytesIO

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from fedward.client.training.flower import (
    DamagedState,
    LazyArray,
    read_state,
    record_of,
    values_of,
    write_state,
)
from fedward.protocol.arrays import BFLOAT16

SAMPLES = [
    np.arange(6, dtype=np.float32).reshape(2, 3),
    np.array(3, dtype=np.int64),
    np.zeros((0, 3), dtype=np.float16),
    np.array([True, False]),
    np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    np.arange(4, dtype=np.uint8)[::2],
]


@pytest.mark.parametrize("values", SAMPLES, ids=lambda v: f"{v.dtype}{v.shape}")
def test_a_lazy_array_is_flowers_array_in_every_field(values):
    lazy, eager = LazyArray(values), Array(values)
    assert lazy == eager
    assert lazy.data == eager.data
    assert lazy.object_id == eager.object_id
    np.testing.assert_array_equal(lazy.numpy(), values)


def test_numpy_gives_a_writable_copy_each_time():
    values = np.ones(3, dtype=np.float32)
    values.flags.writeable = False
    lazy = LazyArray(values)
    lazy.numpy()[0] = 7.0
    assert lazy.numpy().tolist() == [1.0, 1.0, 1.0]


def test_bytes_are_made_only_when_read():
    lazy = record_of({"w": np.ones(3)})["w"]
    assert lazy.__dict__["_bytes"] is None
    assert lazy.data is lazy.data


def test_new_data_replaces_the_values():
    lazy = LazyArray(np.ones(2))
    lazy.data = Array(np.zeros(2)).data
    assert lazy.numpy().tolist() == [0.0, 0.0]
    assert values_of(lazy).tolist() == [0.0, 0.0]


def test_bfloat16_keeps_its_bits_through_flowers_bytes():
    values = np.array([1.5, -0.0, 3e38], dtype=BFLOAT16)
    lazy = LazyArray(values)
    assert lazy.dtype == "bfloat16"
    stored = Array(dtype=lazy.dtype, shape=lazy.shape, stype=lazy.stype, data=lazy.data)
    assert values_of(stored).dtype == BFLOAT16
    assert values_of(stored).tobytes() == values.tobytes()


def test_a_record_keeps_names_order_and_feeds_torch():
    record = record_of({"b": np.ones(2, dtype=np.float32), "a": np.array(1)})
    assert list(record) == ["b", "a"]
    state = record.to_torch_state_dict()
    assert torch.equal(state["b"], torch.ones(2))


def test_pickled_objects_are_refused_both_ways():
    with pytest.raises(ValueError, match="Object arrays"):
        LazyArray(np.array([object()]))
    pickled = BytesIO()
    np.save(pickled, np.array([{}]), allow_pickle=True)
    array = Array(dtype="object", shape=(1,), stype="numpy.ndarray", data=pickled.getvalue())
    with pytest.raises(ValueError, match="allow_pickle"):
        values_of(array)


@pytest.mark.parametrize(
    ("stype", "data", "reason"),
    [
        ("torch", b"", "expected 'numpy.ndarray'"),
        ("numpy.ndarray", b"", "no bytes"),
        ("numpy.ndarray", b"\x93NUMPY garbage", "magic|format|version|header"),
    ],
)
def test_other_serialisations_are_refused(stype, data, reason):
    with pytest.raises(ValueError, match=reason):
        values_of(Array(dtype="float32", shape=(1,), stype=stype, data=data))


def _state() -> RecordDict:
    return RecordDict(
        {
            "model": ArrayRecord({"w": Array(np.arange(3.0)), "n": Array(np.array(2))}),
            "metrics": MetricRecord({"loss": [0.5, float("nan")], "count": 3, "one": 1.0}),
            "config": ConfigRecord(
                {"raw": b"\x00\xff", "parts": [b"a", b""], "name": "x", "on": True, "none": []}
            ),
        }
    )


def _written(state: RecordDict) -> bytes:
    stream = BytesIO()
    write_state(stream, state)
    return stream.getvalue()


def test_state_comes_back_with_values_types_and_order():
    state, again = _state(), read_state(BytesIO(_written(_state())))
    assert list(again) == list(state)
    assert again["model"] == state["model"]
    assert again["config"] == state["config"]
    assert [type(v) for v in again["config"].values()] == [bytes, list, str, bool, list]
    assert type(again["metrics"]["one"]) is float
    assert repr(again["metrics"]) == repr(state["metrics"])
    assert _written(again) == _written(state)


def test_an_opaque_array_survives_in_state_unread():
    opaque = Array(dtype="?", shape=(), stype="pickle", data=b"not looked at")
    again = read_state(BytesIO(_written(RecordDict({"r": ArrayRecord({"o": opaque})}))))
    assert again["r"]["o"] == opaque


@pytest.mark.parametrize("cut", [0, 4, 20, -1])
def test_a_damaged_state_file_is_refused(cut):
    with pytest.raises(DamagedState):
        read_state(BytesIO(_written(_state())[:cut]))


@pytest.mark.parametrize("header", [b"{}", b"[]", b'{"format":"other"}', b'{"format":1,"records"'])
def test_a_state_file_of_another_kind_is_refused(header):
    with pytest.raises(DamagedState):
        read_state(BytesIO(len(header).to_bytes(8, "little") + header))


def test_an_absurd_state_header_is_not_allocated():
    with pytest.raises(DamagedState, match="damaged"):
        read_state(BytesIO(b"\xff" * 16))
