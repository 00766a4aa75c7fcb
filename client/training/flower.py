"""Flower's records in this process: arrays that serialise lazily, and state on disk.

Decides how named arrays become an `ArrayRecord` and back, and the bytes in which a RecordDict
(an app's `context.state`) lies on disk. Nothing is ever pickled or unpickled. What a record
means to an app is decided in `fedward.client.flower`.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from io import BytesIO
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from flwr.common.constant import SType

from fedward.protocol.arrays import BFLOAT16, Arrays

if TYPE_CHECKING:
    import torch

State = RecordDict
"""An app's `context.state`."""

STATE_FORMAT = "fedward-state/1"
MAX_STATE_HEADER_BYTES = 256 * 1024 * 1024
"""A longer header is taken for a damaged file."""
_RAW_BFLOAT16 = np.dtype("V2")
"""What the .npy format makes of bfloat16."""


class DamagedState(Exception):
    """A state file is not one, or is cut off."""


# ---------------------------------------------------------------- arrays


class LazyArray(Array):
    """A Flower array that keeps the ndarray and makes `data`, its .npy bytes, when read.

    `values` is shared, not copied, and must not change afterwards; `numpy()` gives a writable
    copy, as Flower's own does. A bfloat16 array has dtype "bfloat16" and raw two-byte values in
    `data`, since the .npy format has no name for it.
    """

    # Flower writes the class's name into serialised objects and looks it up when reading.
    __qualname__ = "Array"
    __hash__ = None  # type: ignore[assignment]  # mutable, as the parent is

    def __init__(self, values: np.ndarray) -> None:
        # The parent's constructor would serialise.
        if values.dtype.hasobject:
            raise ValueError(f"Object arrays cannot be sent: dtype {values.dtype}")
        self.__dict__.update(
            dtype=str(values.dtype),
            shape=tuple(values.shape),
            stype=SType.NUMPY,
            _values=values,
            _bytes=None,
        )

    @property
    def data(self) -> bytes:  # a field there, a property here
        """The .npy bytes, made at the first reading."""
        held: bytes | None = self.__dict__["_bytes"]
        if held is None:
            buffer = BytesIO()
            np.save(buffer, self.__dict__["_values"], allow_pickle=False)
            held = self.__dict__["_bytes"] = buffer.getvalue()
        return held

    @data.setter
    def data(self, value: bytes) -> None:
        self.__dict__.update(_bytes=value, _values=None)

    def numpy(self) -> np.ndarray:
        """Return a writable copy."""
        values: np.ndarray | None = self.__dict__["_values"]
        return super().numpy() if values is None else values.copy(order="K")

    def __eq__(self, other: object) -> bool:
        """Compare as Flower does: dtype, shape and serialised bytes."""
        if not isinstance(other, Array):
            return NotImplemented
        mine = (self.dtype, tuple(self.shape), self.stype, self.data)
        return mine == (other.dtype, tuple(other.shape), other.stype, other.data)


def record_of(arrays: Arrays) -> ArrayRecord:
    """Return `arrays` as a Flower record, in order, without copying or serialising them."""
    record = ArrayRecord()
    for name, values in arrays.items():
        record[name] = LazyArray(values)
    return record


def values_of(array: Array) -> np.ndarray:
    """Return an array's values, shared where it is lazy; never unpickles.

    Raises:
        ValueError: the serialisation is not .npy, or is malformed, or holds objects.
    """
    held = array.__dict__.get("_values")
    if isinstance(held, np.ndarray):
        return held
    if array.stype != SType.NUMPY:
        raise ValueError(f"got serialisation {array.stype!r}, expected {SType.NUMPY!r}")
    try:
        values = np.load(BytesIO(array.data), allow_pickle=False)
    except EOFError as error:
        raise ValueError("got no bytes, expected .npy data") from error
    if not isinstance(values, np.ndarray):
        raise ValueError(f"got a {type(values).__name__}, expected one array")  # noqa: TRY004  the sender's fault
    if array.dtype == "bfloat16" and values.dtype == _RAW_BFLOAT16:
        return values.view(BFLOAT16)
    return values


def make_records_lazy() -> None:
    """Let this process's `ArrayRecord` hold snapshots instead of serialised bytes.

    Unmodified apps build their replies with `ArrayRecord(state_dict)` or
    `ArrayRecord(ndarrays)`; serialising there and parsing here cost more than training a small
    model does. bfloat16 tensors, which Flower cannot convert, go both ways too.
    """
    ArrayRecord.from_numpy_ndarrays = classmethod(_from_ndarrays)  # type: ignore[method-assign, assignment]  # replaced on purpose
    ArrayRecord.from_torch_state_dict = classmethod(_from_state_dict)  # type: ignore[method-assign, assignment]  # replaced on purpose
    ArrayRecord.to_torch_state_dict = _to_state_dict  # type: ignore[method-assign, assignment]  # replaced on purpose


def _from_ndarrays(
    cls: type[ArrayRecord], ndarrays: list[np.ndarray], *, keep_input: bool = True
) -> ArrayRecord:
    record = cls()
    for index, values in enumerate(ndarrays):
        record[str(index)] = LazyArray(np.array(values, order="K", subok=False))
    if not keep_input:
        ndarrays.clear()
    return record


def _from_state_dict(
    cls: type[ArrayRecord], state_dict: dict[str, torch.Tensor], *, keep_input: bool = True
) -> ArrayRecord:
    from fedward.client.training.tensors import array_from_tensor

    record = cls()
    for name in list(state_dict):
        tensor = state_dict[name] if keep_input else state_dict.pop(name)
        record[name] = LazyArray(array_from_tensor(tensor))
    return record


def _to_state_dict(
    record: ArrayRecord, *, keep_input: bool = True
) -> OrderedDict[str, torch.Tensor]:
    from fedward.client.training.tensors import tensor_from_array

    state: OrderedDict[str, torch.Tensor] = OrderedDict()
    for name in list(record):
        array = record[name] if keep_input else record.pop(name)
        values = array.numpy()
        if array.dtype == "bfloat16":
            values = values.view(BFLOAT16)
        state[name] = tensor_from_array(values)
    return state


# ---------------------------------------------------------------- state on disk
#
# Eight bytes (little-endian length), a JSON header, then the blobs that the header refers to by
# size, one after the other. Header: {"format", "records": [[name, type, [[key, value], ...]]]};
# an array is {"dtype", "shape", "stype", "size"}; bytes are {"size"}; a list of bytes is
# {"sizes"}; everything else is itself, NaN and infinity included, as Python's json writes them.

_TYPES: dict[str, type[ArrayRecord | ConfigRecord | MetricRecord]] = {
    "arrays": ArrayRecord,
    "config": ConfigRecord,
    "metrics": MetricRecord,
}


def write_state(stream: BinaryIO, state: RecordDict) -> None:
    """Write an app's state; the same state gives the same bytes."""
    blobs: list[bytes] = []
    records = []
    for name, record in state.items():
        kind = next(kind for kind, cls in _TYPES.items() if isinstance(record, cls))
        records.append([name, kind, [[key, _packed(v, blobs)] for key, v in record.items()]])
    header = json.dumps({"format": STATE_FORMAT, "records": records}).encode()
    stream.write(len(header).to_bytes(8, "little"))
    stream.write(header)
    stream.writelines(blobs)


def read_state(stream: BinaryIO) -> RecordDict:
    """Read what `write_state` wrote.

    Raises:
        DamagedState: the stream holds something else, or ends too early.
    """
    size = int.from_bytes(_take(stream, 8), "little")
    if size > MAX_STATE_HEADER_BYTES:
        raise DamagedState(f"state header of {size} bytes: the file is damaged")
    try:
        header = json.loads(_take(stream, size))
        if header["format"] != STATE_FORMAT:
            raise DamagedState(f"got state format {header['format']!r}, expected {STATE_FORMAT!r}")
        state = RecordDict()
        for name, kind, items in header["records"]:
            record: Any = _TYPES[kind]()
            for key, value in items:
                record[key] = _unpacked(value, stream)
            state[name] = record
    except (ValueError, TypeError, KeyError) as error:
        raise DamagedState(f"the state file is damaged: {error!r}") from error
    return state


def _packed(value: Any, blobs: list[bytes]) -> Any:
    if isinstance(value, Array):
        data = value.data
        blobs.append(data)
        shape = list(value.shape)
        return {"dtype": value.dtype, "shape": shape, "stype": value.stype, "size": len(data)}
    if isinstance(value, bytes):
        blobs.append(value)
        return {"size": len(value)}
    if isinstance(value, list) and value and isinstance(value[0], bytes):
        blobs.extend(value)
        return {"sizes": [len(item) for item in value]}
    return value


def _unpacked(value: Any, stream: BinaryIO) -> Any:
    if not isinstance(value, dict):
        return value
    if "dtype" in value:
        return Array(
            dtype=value["dtype"],
            shape=tuple(value["shape"]),
            stype=value["stype"],
            data=_take(stream, value["size"]),
        )
    if "sizes" in value:
        return [_take(stream, size) for size in value["sizes"]]
    return _take(stream, value["size"])


def _take(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) != size:
        raise DamagedState(f"state ended after {len(data)} of {size} bytes")
    return data
