"""Checks the zip of a Flower app directory before anybody unpacks it.

The archive has `pyproject.toml` at its root, whose `[tool.flwr.app.components] clientapp` names
a module in the archive. Refused: paths that leave the folder or mean another file elsewhere,
links, encrypted or damaged entries, names that collide where case is ignored, and archives
that unpack to more than they may. The code itself is neither imported nor judged here.
"""

import io
import re
import stat
import tomllib
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from fedward.coordinator.errors import LimitExceeded, UpdateRefused
from fedward.protocol.documents import Scalar

MAX_FILES = 10_000
MAX_UNPACKED_BYTES = 1024**3
MAX_MANIFEST_BYTES = 1024**2
_READ_BYTES = 1024**2
_CLIENTAPP = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_BAD_CHARACTERS = re.compile(r'[\x00-\x1f<>:"|?*\\]')
_SCALAR: TypeAdapter[Scalar] = TypeAdapter(Scalar, config=ConfigDict(allow_inf_nan=False))
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


@dataclass(frozen=True, slots=True)
class Bundle:
    """What the manifest and the archive say."""

    name: str
    version: str
    clientapp: str
    config: dict[str, Scalar]
    files: tuple[str, ...]


def read_bundle(data: bytes) -> Bundle:
    """Check an archive and return what it says.

    Raises:
        UpdateRefused: `invalid-app`.
        LimitExceeded: too many files, or they unpack to too much.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            files = _check_names(entries)
            _check_contents(archive, entries)
            if "pyproject.toml" not in files:
                raise _invalid("no pyproject.toml at the root of the archive")
            manifest = _read_manifest(archive)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError) as error:
        raise _invalid(f"not a readable zip archive ({type(error).__name__})") from error
    return _describe(manifest, files)


def _check_names(entries: list[zipfile.ZipInfo]) -> tuple[str, ...]:
    if len(entries) > MAX_FILES:
        raise LimitExceeded("app-too-large", f"app: got {len(entries)} files, at most {MAX_FILES}")
    seen: set[str] = set()
    files = []
    for entry in entries:
        name = entry.filename.removesuffix("/")
        if not _is_safe(name) or entry.orig_filename.removesuffix("/") != name:
            raise _invalid(f"file {name[:100]!r}: not a plain relative path")
        if name.casefold() in seen:
            raise _invalid(f"file {name!r}: comes twice (upper and lower case count as the same)")
        seen.add(name.casefold())
        kind = stat.S_IFMT(entry.external_attr >> 16)
        if kind not in {0, stat.S_IFREG, stat.S_IFDIR}:
            raise _invalid(f"file {name!r}: neither a plain file nor a folder")
        if entry.flag_bits & 1 or entry.compress_type not in _COMPRESSIONS:
            raise _invalid(f"file {name!r}: encrypted, or compressed in an uncommon way")
        if not entry.is_dir():
            files.append(name)
    inner = {str(parent).casefold() for file in files for parent in PurePosixPath(file).parents}
    for file in files:
        if file.casefold() in inner:
            raise _invalid(f"file {file!r}: is a folder, too")
    return tuple(sorted(files))


def _is_safe(name: str) -> bool:
    path = PurePosixPath(name)
    return bool(
        name
        and len(name.encode()) <= 1000
        and not _BAD_CHARACTERS.search(name)
        and not path.is_absolute()
        and str(path) == name
        and all(p not in {".", ".."} and p == p.rstrip(" .") for p in path.parts)
    )


def _check_contents(archive: zipfile.ZipFile, entries: list[zipfile.ZipInfo]) -> None:
    """Unpack everything into nothing: checks sums and the true size, never the stated one."""
    total = 0
    for entry in entries:
        with archive.open(entry) as file:
            while chunk := file.read(_READ_BYTES):
                total += len(chunk)
                if total > MAX_UNPACKED_BYTES:
                    raise LimitExceeded(
                        "app-too-large", f"app: unpacks to more than {MAX_UNPACKED_BYTES} bytes"
                    )


def _read_manifest(archive: zipfile.ZipFile) -> dict[str, Any]:
    if archive.getinfo("pyproject.toml").file_size > MAX_MANIFEST_BYTES:
        raise _invalid(f"pyproject.toml: more than {MAX_MANIFEST_BYTES} bytes")
    try:
        return tomllib.loads(archive.read("pyproject.toml").decode())
    except ValueError as error:  # TOML, UTF-8, a number of thousands of digits
        raise _invalid("pyproject.toml: not TOML in UTF-8") from error
    except RecursionError as error:
        raise _invalid("pyproject.toml: nested too deeply") from error


def _describe(manifest: dict[str, Any], files: tuple[str, ...]) -> Bundle:
    project = _table(manifest, "project")
    app = _table(_table(_table(manifest, "tool"), "flwr"), "app")
    clientapp = _table(app, "components").get("clientapp")
    if not isinstance(clientapp, str) or not _CLIENTAPP.fullmatch(clientapp):
        raise _invalid(
            "pyproject.toml: [tool.flwr.app.components] clientapp: "
            f"got {str(clientapp)[:100]!r}, expected 'package.module:name'"
        )
    module = clientapp.partition(":")[0].replace(".", "/")
    if not {f"{module}.py", f"{module}/__init__.py"} & set(files):
        raise _invalid(f"clientapp {clientapp!r}: the archive has no {module}.py")
    name, version = project.get("name"), project.get("version")
    for field, value in (("name", name), ("version", version)):
        if not isinstance(value, str) or not 1 <= len(value) <= 200:
            raise _invalid(f"pyproject.toml: [project] {field}: expected 1 to 200 characters")
    return Bundle(str(name), str(version), clientapp, _read_config(app), files)


def _read_config(app: Mapping[str, Any]) -> dict[str, Scalar]:
    try:
        return _flatten(_table(app, "config"))
    except RecursionError as error:  # a key of hundreds of dots, which TOML's parser takes
        raise _invalid("pyproject.toml: [tool.flwr.app.config]: nested too deeply") from error


def _flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, Scalar]:
    """Return the settings with dotted names, as Flower does."""
    flat: dict[str, Scalar] = {}
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            flat |= _flatten(value, f"{name}.")
        else:
            flat[name] = _scalar(name, value)
    return flat


def _scalar(name: str, value: object) -> Scalar:
    """Return a setting that a wire document can hold."""
    where = f"pyproject.toml: [tool.flwr.app.config] {name[:200]}"
    if not isinstance(value, bool | int | float | str):
        kind = type(value).__name__
        raise _invalid(f"{where}: got {kind}, expected a text, number or truth value")
    try:
        return _SCALAR.validate_python(value)
    except ValidationError as error:
        got = f"{len(value)} characters" if isinstance(value, str) else str(value)
        expected = "a finite number, or a text of at most 16384 characters"
        raise _invalid(f"{where}: got {got}, expected {expected}") from error


def _table(parent: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = parent.get(name, {})
    if not isinstance(value, Mapping):
        raise _invalid(f"pyproject.toml: {name}: got {type(value).__name__}, expected a table")
    return value


def _invalid(detail: str) -> UpdateRefused:
    return UpdateRefused("invalid-app", f"app: {detail}")
