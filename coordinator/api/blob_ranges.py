"""Answers with a part of a file that lies in memory, so that it can be signed.

A range that is longer than one chunk is cut to a chunk; `Content-Range` says what was sent, and
the agent asks for the rest. Without a range only a small file is sent.
"""

import re
from pathlib import Path

from starlette.responses import Response

from fedward.coordinator.api.problems import RequestRefused
from fedward.protocol.documents import MAX_CHUNK_BYTES

_RANGE = re.compile(r"bytes=(\d{1,19})-(\d{0,19})", re.ASCII)
_MEDIA_TYPE = "application/octet-stream"


def read_range(path: Path, header: str | None, *, digest: str) -> Response:
    """Return 200 with the whole of a small file, or 206 with the range that `header` names.

    Raises:
        RequestRefused: `invalid-range` (400 malformed, 416 outside), or `range-required`.
    """
    size = path.stat().st_size
    base = {"Accept-Ranges": "bytes", "ETag": f'"{digest}"', "Cache-Control": "private, immutable"}
    if header is None:
        if size > MAX_CHUNK_BYTES:
            raise RequestRefused(
                "range-required", f"{digest} has {size} bytes: fetch it in ranges", got=size,
                expected=f"Range: bytes=0-{MAX_CHUNK_BYTES - 1}",
            )  # fmt: skip
        return Response(path.read_bytes(), headers=base, media_type=_MEDIA_TYPE)
    first, last = parse_range(header, size=size)
    last = min(last, first + MAX_CHUNK_BYTES - 1)
    with path.open("rb") as file:
        file.seek(first)
        data = file.read(last - first + 1)
    span = {"Content-Range": f"bytes {first}-{last}/{size}"}
    return Response(data, 206, headers=base | span, media_type=_MEDIA_TYPE)


def parse_range(header: str, *, size: int) -> tuple[int, int]:
    """Return the first and last position of the one range that `header` names.

    Raises:
        RequestRefused: `invalid-range` (400 malformed or several, 416 outside).
    """
    found = _RANGE.fullmatch(header.strip())
    if found is None or (found[2] and int(found[2]) < int(found[1])):
        raise RequestRefused(
            "invalid-range", f"Range: got {header[:80]!r}", got=header[:80],
            expected="bytes=FIRST-LAST or bytes=FIRST-",
        )  # fmt: skip
    if int(found[1]) >= size:
        raise RequestRefused(
            "invalid-range", f"Range: got {header[:80]!r}, there are {size} bytes", status=416,
            got=header[:80], expected=f"a first byte below {size}",
        )  # fmt: skip
    return int(found[1]), min(size - 1, int(found[2] or size - 1))
