"""The bytes of arrays: round trips, the safetensors library, and malformed files."""

import json
import mmap
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedward.protocol.arrays import (
    ArraySpec,
    arrays_digest,
    decode,
    decode_schema,
    encode,
    encoded_size,
    schema_of,
    schema_size_bytes,
)
from fedward.protocol.canonical import sha256_digest
from fedward.protocol.errors import InvalidArrays

BF16 = ml_dtypes.bfloat16
DTYPES = ["float16", "float32", "float64", "int8", "int16", "int32", "int64",
          "uint8", "uint16", "uint32", "uint64", "bool"]  # fmt: skip
F32 = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}


def written(arrays: dict[str, Any]) -> bytes:
    return b"".join(encode(arrays))


def file_of(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def same(got: dict[str, Any], expected: dict[str, Any]) -> None:
    assert list(got) == list(expected)
    for name, array in expected.items():
        assert got[name].dtype == array.dtype.newbyteorder("<")
        assert got[name].shape == array.shape
        assert got[name].tobytes() == array.astype(array.dtype.newbyteorder("<")).tobytes()


def every_dtype() -> dict[str, Any]:
    arrays = {dtype: np.array([[0, 1], [1, 0]], dtype) for dtype in DTYPES}
    return arrays | {
        "bfloat16": np.array([1.5, -2.0, np.nan], BF16),
        "0-d": np.array(7, np.int64),
        "empty": np.zeros((0, 3), np.float32),
        'empty 0-d name é\n"': np.zeros((2, 0), BF16),
    }


array_values = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(
        dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
    )
)
names = st.text(st.characters(codec="utf-8"), max_size=20).filter(lambda n: n != "__metadata__")


@given(st.dictionaries(names, array_values, max_size=6))
def test_what_is_encoded_decodes_to_the_same_arrays_in_the_same_order(
    arrays: dict[str, Any],
) -> None:
    data = written(arrays)
    same(decode(data), arrays)
    assert len(data) == encoded_size(schema_of(arrays))
    assert decode_schema(data) == schema_of(arrays)
    assert arrays_digest(arrays) == sha256_digest(data)


def test_every_dtype_and_shape_round_trips_exactly() -> None:
    same(decode(written(every_dtype())), every_dtype())


def test_the_known_bytes_of_a_small_file() -> None:
    header = (
        b'{"n":{"dtype":"U8","shape":[],"data_offsets":[8,9]},'
        b'"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    )
    header += b" " * (-len(header) % 8)
    expected = len(header).to_bytes(8, "little") + header + b"\0\0\x80\x3f\0\0\0\xc0" + b"\x05"
    got = written({"n": np.array(5, np.uint8), "w": np.array([1, -2], np.float32)})
    assert got == expected


def test_big_endian_and_strided_arrays_are_written_as_their_values() -> None:
    arrays = {
        "big": np.array([1.0, 2.0], ">f8"),
        "column": np.arange(12, dtype=np.float32).reshape(3, 4)[:, 1],
        "fortran": np.asfortranarray(np.arange(6, dtype=np.int16).reshape(2, 3)),
        "reversed": np.arange(3, dtype=np.uint8)[::-1],
    }
    got = decode(written(arrays))
    for name, array in arrays.items():
        assert got[name].tolist() == array.tolist()


def test_dense_arrays_are_written_without_a_copy() -> None:
    array = np.zeros((3, 5), np.float32)
    piece = encode({"w": array})[1]
    assert isinstance(piece, memoryview)
    assert np.shares_memory(np.frombuffer(piece, np.uint8), array)


def test_decoded_arrays_are_aligned_read_only_views_of_the_buffer() -> None:
    data = bytearray(written({"b": np.array([True]), "d": np.arange(3.0), "f": np.ones(2, "f4")}))
    for array in decode(data).values():
        assert array.flags.aligned
        assert not array.flags.writeable
        assert np.shares_memory(array, np.frombuffer(data, np.uint8))


def test_a_mapped_file_is_read_in_place(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(written(every_dtype()))
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    same(decode(mapped), every_dtype())
    same(decode(memoryview(mapped)), every_dtype())


def test_the_safetensors_library_reads_our_file() -> None:
    arrays = {name: array for name, array in every_dtype().items() if array.dtype != BF16}
    got = safetensors.numpy.load(written(arrays))
    same({name: got[name] for name in arrays}, arrays)
    tensors = safetensors.torch.load(written({"w": np.array([1.5, -3.0], BF16)}))
    assert tensors["w"].dtype == torch.bfloat16
    assert tensors["w"].tolist() == [1.5, -3.0]


@given(st.dictionaries(names, array_values, max_size=6))
def test_we_read_what_the_safetensors_library_writes(arrays: dict[str, Any]) -> None:
    data = safetensors.numpy.save(arrays, metadata={"made": "by a test"})
    got = decode(data)
    same({name: got[name] for name in arrays}, arrays)


def test_we_read_bfloat16_of_the_safetensors_library() -> None:
    tensors = {"w": torch.tensor([[1.5], [-3.0]], dtype=torch.bfloat16), "n": torch.tensor(3)}
    got = decode(safetensors.torch.save(tensors))
    same(got, {"n": np.array(3, np.int64), "w": np.array([[1.5], [-3.0]], BF16)})


def test_an_unaligned_foreign_file_is_read_as_an_aligned_copy() -> None:
    header = {
        "b": {"dtype": "BOOL", "shape": [1], "data_offsets": [0, 1]},
        "w": {"dtype": "F32", "shape": [1], "data_offsets": [1, 5]},
    }
    for padding in range(4):  # one of the four may lie aligned by chance
        text = json.dumps(header).encode() + b" " * padding
        got = decode(file_of(text, b"\x01" + np.float32(2.5).tobytes()))
        assert got["w"].flags.aligned
        assert not got["w"].flags.writeable
        same(got, {"b": np.array([True]), "w": np.array([2.5], np.float32)})


def test_buffers_may_lie_in_another_order_than_the_header() -> None:
    header = {"b": F32 | {"data_offsets": [4, 8]}, "a": F32}
    got = decode(file_of(header, np.array([1, 2], "f4").tobytes()))
    assert {name: array.tolist() for name, array in got.items()} == {"b": [2.0], "a": [1.0]}


MALFORMED = {
    "nothing": b"",
    "seven bytes": b"\0" * 7,
    "header longer than the file": (9).to_bytes(8, "little") + b"{}",
    "header over the limit": (100_000_001).to_bytes(8, "little") + b"{}",
    "header of 2**64 - 1": b"\xff" * 8 + b"{}",
    "no JSON": file_of(b"{"),
    "no UTF-8": file_of(b'{"\xff": 1}'),
    "JSON list": file_of([]),
    "endless nesting": file_of(b"[" * 100_000),
    "a number of 5000 digits": file_of(b'{"a":' + b"1" * 5000 + b"}"),
    "trailing byte": file_of({"a": F32}, b"\0" * 5),
    "bytes missing": file_of({"a": F32}, b"\0" * 3),
    "only trailing bytes": file_of({}, b"\0"),
    "a name twice": file_of(b'{"a":%b,"a":%b}' % ((json.dumps(F32).encode(),) * 2), b"\0" * 4),
    "a field twice": file_of(
        b'{"a":{"dtype":"F32","dtype":"F32","shape":[],"data_offsets":[0,4]}}'
    ),
    "hole": file_of({"a": F32, "b": F32 | {"data_offsets": [8, 12]}}, b"\0" * 12),
    "hole at the start": file_of({"b": F32 | {"data_offsets": [4, 8]}}, b"\0" * 8),
    "overlap": file_of({"a": F32, "b": F32 | {"data_offsets": [2, 6]}}, b"\0" * 6),
    "shared bytes": file_of({"a": F32, "b": F32}, b"\0" * 4),
    "out of range": file_of({"a": F32 | {"data_offsets": [4, 8]}}, b"\0" * 4),
    "backwards": file_of({"a": F32 | {"data_offsets": [4, 0]}}, b"\0" * 4),
    "negative offset": file_of({"a": F32 | {"data_offsets": [-4, 0]}}, b""),
    "three offsets": file_of({"a": F32 | {"data_offsets": [0, 4, 4]}}, b"\0" * 4),
    "offsets of the wrong size": file_of({"a": F32 | {"data_offsets": [0, 8]}}, b"\0" * 8),
    "negative shape": file_of({"a": F32 | {"shape": [-1]}}, b"\0" * 4),
    "boolean shape": file_of({"a": F32 | {"shape": [True]}}, b"\0" * 4),
    "float shape": file_of({"a": F32 | {"shape": [1.0]}}, b"\0" * 4),
    "shape is a text": file_of({"a": F32 | {"shape": "1"}}, b"\0" * 4),
    "huge shape": file_of({"a": F32 | {"shape": [2**40, 2**40]}}, b"\0" * 4),
    "huge shape times zero": file_of(
        {"a": F32 | {"shape": [0, 2**62, 2**62], "data_offsets": [0, 0]}}
    ),
    "33 dimensions": file_of({"a": F32 | {"shape": [1] * 33}}, b"\0" * 4),
    "unknown dtype": file_of({"a": F32 | {"dtype": "F8_E4M3"}}, b"\0" * 4),
    "dtype is a list": file_of({"a": F32 | {"dtype": ["F32"]}}, b"\0" * 4),
    "unknown field": file_of({"a": F32 | {"extra": 1}}, b"\0" * 4),
    "missing field": file_of({"a": {"dtype": "F32", "shape": [1]}}, b"\0" * 4),
    "entry is a list": file_of({"a": [1]}, b"\0" * 4),
    "metadata of numbers": file_of({"__metadata__": {"a": 1}}),
    "metadata is a text": file_of({"__metadata__": "a"}),
    "a lone surrogate": file_of(b'{"\\ud800":%b}' % json.dumps(F32).encode(), b"\0" * 4),
    "a name of 513 characters": file_of({"x" * 513: F32}, b"\0" * 4),
    "a bool of 2": file_of({"a": F32 | {"dtype": "BOOL", "data_offsets": [0, 1]}}, b"\x02"),
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_file_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidArrays) as caught:
        decode(data)
    assert len(str(caught.value)) < 1000


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused_and_nothing_else_happens(data: bytes) -> None:
    try:
        decode(data)
    except InvalidArrays:
        return
    assert data[:8] == len(data[8:]).to_bytes(8, "little")  # only an empty header can be right


@given(st.data())
def test_a_file_with_a_changed_header_byte_is_refused_or_read_with_its_size(
    data: st.DataObject,
) -> None:
    good = written({"a": np.arange(3, dtype="f4"), "b": np.array(True)})
    at = data.draw(st.integers(0, len(good) - 14))
    bad = bytearray(good)
    bad[at] = data.draw(st.integers(0, 255))
    try:
        schema = schema_of(decode(bytes(bad)))
    except InvalidArrays:
        return
    assert schema_size_bytes(schema) == 13


def test_dtypes_that_cannot_be_carried_are_refused_by_name() -> None:
    for array in (
        np.zeros(1, np.complex64),
        np.array(["a"]),
        np.array([None]),
        np.zeros(1, "M8[s]"),
    ):
        with pytest.raises(InvalidArrays, match=r"array 'w': got dtype \S+, expected one of bfl"):
            encode({"w": array})


def test_names_that_cannot_be_carried_are_refused() -> None:
    for name in ("__metadata__", "\ud800", "x" * 513):
        with pytest.raises(InvalidArrays):
            encode({name: np.zeros(1, np.float32)})


def test_a_value_that_is_no_array_is_the_callers_mistake() -> None:
    with pytest.raises(TypeError, match="got float64, expected numpy"):
        encode({"w": np.float64(1.0)})  # type: ignore[dict-item]  # wrong on purpose


def test_a_header_over_the_limit_is_not_written() -> None:
    many = dict.fromkeys(
        ("\U0001f600" * 507 + f"{n:05d}" for n in range(49_000)), np.zeros(0, np.int8)
    )
    with pytest.raises(InvalidArrays, match="expected 100000000 at most"):
        encode(many)


def test_sizes_of_a_schema_count_the_values() -> None:
    spec = ArraySpec("w", "float16", (2, 3))
    assert (spec.elements, spec.size_bytes) == (6, 12)
    assert (ArraySpec("n", "int64", ()).elements, ArraySpec("n", "int64", ()).size_bytes) == (1, 8)
    assert ArraySpec("e", "bool", (0, 3)).size_bytes == 0
    assert schema_size_bytes((spec, ArraySpec("n", "int64", ()))) == 20
