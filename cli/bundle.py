"""A Flower app directory as one zip file, the same bytes for the same files.

What goes in follows Flower's own `flwr build`: code, settings and small text, never data, build
output, hidden folders or tests. The coordinator checks the content; this module only refuses
what is certainly no app.
"""

import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from .errors import InvalidFile

INCLUDED = frozenset({".py", ".toml", ".md", ".yaml", ".yml", ".json", ".jsonl"})
LEFT_OUT_FOLDERS = frozenset(
    {"__pycache__", "build", "dist", "eggs", "lib", "lib64", "node_modules", "venv", "env"}
)
ZIP_DATE = (1980, 1, 1, 0, 0, 0)
"""The oldest date that a zip file can hold: the archive does not depend on file times."""


@dataclass(frozen=True, slots=True)
class BundleFiles:
    """The files of an app, relative to its directory, sorted."""

    included: tuple[PurePosixPath, ...]
    left_out: tuple[PurePosixPath, ...]


def write_bundle(directory: Path, target: Path) -> BundleFiles:
    """Zip the app in `directory` to `target`.

    Returns:
        Which files are in the bundle and which are not.

    Raises:
        InvalidFile: no Flower app, or a symbolic link among its files.
    """
    require_app(directory)
    files = choose_files(directory)
    with zipfile.ZipFile(target, "w", compression=zipfile.ZIP_DEFLATED) as bundle:
        for name in files.included:
            entry = zipfile.ZipInfo(str(name), date_time=ZIP_DATE)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            bundle.writestr(entry, (directory / name).read_bytes())
    return files


def require_app(directory: Path) -> None:
    """Check that the directory names a ClientApp.

    Raises:
        InvalidFile: no pyproject.toml, or no `clientapp` in it.
    """
    project = directory / "pyproject.toml"
    try:
        document = tomllib.loads(project.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidFile(f"{project}: {error}") from error
    found: object = document
    for key in ("tool", "flwr", "app", "components", "clientapp"):
        found = found.get(key) if isinstance(found, dict) else None
    if not isinstance(found, str) or ":" not in found:
        raise InvalidFile(
            f"{project}: tool.flwr.app.components.clientapp: got {found!r}, "
            'expected "package.module:name"'
        )


def choose_files(directory: Path) -> BundleFiles:
    """Choose the files of the bundle.

    Raises:
        InvalidFile: a symbolic link, which could bring in files from elsewhere.
    """
    included: list[PurePosixPath] = []
    left_out: list[PurePosixPath] = []
    for path in sorted(directory.rglob("*")):
        name = PurePosixPath(path.relative_to(directory).as_posix())
        if any(part.startswith(".") or part in LEFT_OUT_FOLDERS for part in name.parts):
            continue
        if path.is_symlink():
            raise InvalidFile(f"{path}: got a symbolic link, expected a file or folder")
        if path.is_file():
            (included if _belongs(name) else left_out).append(name)
    return BundleFiles(included=tuple(included), left_out=tuple(left_out))


def _belongs(name: PurePosixPath) -> bool:
    if name == PurePosixPath("LICENSE"):
        return True
    is_test = name.name.startswith("test_") or name.name.endswith("_test.py")
    return name.suffix in INCLUDED and not is_test
