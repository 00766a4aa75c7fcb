"""Moving files between this machine and the coordinator, with a progress bar."""

from pathlib import Path
from typing import Any

from .errors import InvalidFile
from .http import Api
from .output import transfer_progress


def upload_model(api: Api, file: Path) -> dict[str, Any]:
    """Upload a safetensors file and return the coordinator's view of the model.

    Raises:
        InvalidFile: it cannot be read or is certainly no safetensors file.
    """
    require_safetensors(file)
    with transfer_progress("uploading", file_size(file)) as moved:
        view: dict[str, Any] = api.upload(
            "/models", file, media_type="application/octet-stream", moved=moved
        )
    return view


def upload_bundle(api: Api, file: Path) -> dict[str, Any]:
    """Upload a zipped Flower app and return the coordinator's view of it."""
    with transfer_progress("uploading", file_size(file)) as moved:
        view: dict[str, Any] = api.upload("/apps", file, media_type="application/zip", moved=moved)
    return view


def download_model(api: Api, digest: str, target: Path) -> int:
    """Download a model version to `target`, check its digest, return its size in bytes."""
    size_bytes = api.get(f"/models/{digest}")["size_bytes"]
    with transfer_progress("downloading", size_bytes) as moved:
        return api.download(f"/models/{digest}/content", target, digest=digest, moved=moved)


def require_safetensors(file: Path) -> None:
    """Check a file's beginning: the length of its header, 8 bytes little-endian, and a JSON object.

    Raises:
        InvalidFile: it cannot be read or begins otherwise.
    """
    size_bytes = file_size(file)
    try:
        with file.open("rb") as stream:
            length, opening = stream.read(8), stream.read(1)
    except OSError as error:
        raise InvalidFile(f"{file}: {error.strerror}") from error
    if len(length) < 8 or opening != b"{" or int.from_bytes(length, "little") > size_bytes - 8:
        raise InvalidFile(f"{file}: not a safetensors file")


def file_size(file: Path) -> int:
    """Return the size of a file in bytes.

    Raises:
        InvalidFile: there is no such file.
    """
    try:
        return file.stat().st_size
    except OSError as error:
        raise InvalidFile(f"{file}: {error.strerror}") from error
