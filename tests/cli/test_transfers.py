"""Files that are certainly no models are refused before a byte is sent."""

from pathlib import Path

import numpy as np
import pytest

from fedward.cli.errors import InvalidFile
from fedward.cli.transfers import require_safetensors
from fedward.protocol.arrays import encode


def test_a_model_passes(tmp_path: Path) -> None:
    file = tmp_path / "m.safetensors"
    file.write_bytes(b"".join(encode({"w": np.zeros(3, dtype=np.float32)})))
    require_safetensors(file)


@pytest.mark.parametrize("content", [b"", b"a-host-name\n", b"\xff" * 8 + b"{}", b"PK\x03\x04" * 9])
def test_another_file_is_named(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(content)
    with pytest.raises(InvalidFile, match="x: not a safetensors file"):
        require_safetensors(file)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match=r"none: No such file"):
        require_safetensors(tmp_path / "none")
