"""Unpacks an app bundle (a zip of a Flower app directory) where the worker can import it.

The coordinator has checked the bundle too; the site does not rely on that.
"""

import os
import shutil
import stat
import tomllib
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from fedward.protocol.canonical import digest_hex
from fedward.protocol.documents import TaskFailure

from .cache import flush_folder
from .errors import TaskFailed

MAX_FILES = 10_000
MAX_UNPACKED_BYTES = 2 * 2**30
_UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,  # an unknown compression
    RuntimeError,  # encrypted
    FileExistsError,  # a name is a file and a folder
    NotADirectoryError,
)


def unpack_bundle(archive: Path, *, digest: str, folder: Path) -> Path:
    """Unpack a verified bundle into `folder` under its digest, once; return the app's directory.

    Raises:
        TaskFailed: app-invalid; a name leaves the directory, is given twice or is no plain
            file, or the whole is too large.
    """
    target = folder / digest_hex(digest)
    if target.exists():
        return target
    folder.mkdir(exist_ok=True)
    scratch = folder / f".{target.name}.new"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    try:
        with zipfile.ZipFile(archive) as bundle:
            for entry in _checked(bundle, digest):
                _extract(bundle, entry, scratch)
    except _UNREADABLE as error:
        raise TaskFailed(TaskFailure.APP_INVALID, f"bundle {digest}: {error}") from error
    scratch.rename(target)
    flush_folder(folder)
    return target


def clientapp_of(app: Path) -> str:
    """Return `[tool.flwr.app.components] clientapp` of an app directory.

    Raises:
        TaskFailed: app-invalid; there is no pyproject.toml, or it names no clientapp.
    """
    try:
        text = (app / "pyproject.toml").read_text(encoding="utf-8")
        value = tomllib.loads(text)["tool"]["flwr"]["app"]["components"]["clientapp"]
    except (OSError, ValueError, RecursionError, KeyError, TypeError) as error:
        detail = f"{app.name}: pyproject.toml names no clientapp: {error}"
        raise TaskFailed(TaskFailure.APP_INVALID, detail) from error
    if not isinstance(value, str) or ":" not in value:
        detail = f"{app.name}: clientapp: got {value!r}, expected 'package.module:name'"
        raise TaskFailed(TaskFailure.APP_INVALID, detail)
    return value


def _checked(bundle: zipfile.ZipFile, digest: str) -> list[zipfile.ZipInfo]:
    entries = [entry for entry in bundle.infolist() if not entry.is_dir()]
    total = sum(entry.file_size for entry in entries)
    if len(entries) > MAX_FILES or total > MAX_UNPACKED_BYTES:
        detail = f"bundle {digest}: got {len(entries)} files of {total} bytes"
        raise TaskFailed(TaskFailure.APP_INVALID, detail)
    seen: set[str] = set()
    for entry in entries:
        path = PurePosixPath(entry.filename)
        kind = stat.S_IFMT(entry.external_attr >> 16)
        plain = kind in {0, stat.S_IFREG}
        inside = not path.is_absolute() and ".." not in path.parts and "\\" not in entry.filename
        if not (plain and inside) or path.as_posix().casefold() in seen:
            detail = f"bundle {digest}: file {entry.filename!r} is not allowed"
            raise TaskFailed(TaskFailure.APP_INVALID, detail)
        seen.add(path.as_posix().casefold())
    return entries


def _extract(bundle: zipfile.ZipFile, entry: zipfile.ZipInfo, folder: Path) -> None:
    target = folder / PurePosixPath(entry.filename)
    target.parent.mkdir(parents=True, exist_ok=True)
    with bundle.open(entry) as source, target.open("wb") as copy:
        shutil.copyfileobj(source, copy, 1024 * 1024)
        copy.flush()
        os.fsync(copy.fileno())
