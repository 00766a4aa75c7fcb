"""Frames between the agent and its worker: a length, then a JSON object.

A frame is four bytes (the body's length, unsigned, big-endian) and the body, UTF-8 JSON with an
object at the top. Arrays never travel in frames; they are files that the frames name. What a
frame means is decided in `worker.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, BinaryIO, Protocol

MAX_FRAME_BYTES = 64 * 1024 * 1024
"""A longer frame is taken for noise on the pipe (an app that wrote to it), not for a message."""
LENGTH_BYTES = 4


class ByteSource(Protocol):
    """A blocking stream; `read` may give less than asked for, nothing at its end."""

    def read(self, size: int, /) -> bytes | None:
        """Read up to `size` bytes."""
        ...


class BrokenFrame(Exception):
    """The stream ended inside a frame, or holds something that is not one."""


def read_frame(stream: ByteSource) -> dict[str, Any] | None:
    """Read the next frame, or None where the stream ends between two frames.

    Raises:
        BrokenFrame: the stream ended inside a frame, the length is above the limit, or the body
            is not a JSON object.
    """
    head = _read_exactly(stream, LENGTH_BYTES)
    if not head:
        return None
    if len(head) < LENGTH_BYTES:
        raise BrokenFrame(f"stream ended after {len(head)} of {LENGTH_BYTES} length bytes")
    size = body_size(head)
    body = _read_exactly(stream, size)
    if len(body) < size:
        raise BrokenFrame(f"stream ended after {len(body)} of {size} bytes")
    return parse_body(body)


def write_frame(stream: BinaryIO, message: dict[str, Any]) -> None:
    """Write `message` as one frame and flush. Raises as `frame_bytes`."""
    stream.write(frame_bytes(message))
    stream.flush()


def frame_bytes(message: Mapping[str, Any]) -> bytes:
    """Return `message` as one frame.

    Raises:
        ValueError: a value is not JSON (NaN and infinity are not), or the frame is too long.
    """
    body = json.dumps(message, allow_nan=False, separators=(",", ":")).encode()
    if len(body) > MAX_FRAME_BYTES:
        raise ValueError(f"frame of {len(body)} bytes, at most {MAX_FRAME_BYTES} allowed")
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def body_size(head: bytes) -> int:
    """Return the length that a frame's first bytes say. Raises BrokenFrame above the limit."""
    size = int.from_bytes(head, "big")
    if size > MAX_FRAME_BYTES:
        raise BrokenFrame(f"frame of {size} bytes, at most {MAX_FRAME_BYTES} expected")
    return size


def parse_body(body: bytes) -> dict[str, Any]:
    """Return a frame's message. Raises BrokenFrame where it is not a JSON object."""
    try:
        message = json.loads(body)
    except ValueError as error:
        raise BrokenFrame(f"frame of {len(body)} bytes is not JSON") from error
    if not isinstance(message, dict):
        raise BrokenFrame(f"got a JSON {type(message).__name__}, expected an object")
    return message


def _read_exactly(stream: ByteSource, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = stream.read(size - len(parts))
        if not part:
            break
        parts += part
    return bytes(parts)
