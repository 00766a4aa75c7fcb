"""The wheel that users install, built from a clean copy of the tree."""

import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PARTS: dict[str, str] = PROJECT["tool"]["setuptools"]["package-dir"]
RUN_BY_OTHERS = ("/__main__.py", "/env.py")
"""Scripts rather than modules: Python and alembic run them."""
CACHES = shutil.ignore_patterns("__pycache__", "*.pyc")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("copy")
    for folder in PARTS.values():
        shutil.copytree(ROOT / folder, copy / folder, ignore=CACHES)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    out = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", str(out), str(copy)], check=True, cwd=copy)
    (built,) = out.glob("fedward-*.whl")
    return built


def files_of_the_tree() -> set[str]:
    found = set()
    for name, folder in PARTS.items():
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                inside = path.relative_to(ROOT / folder).as_posix()
                found.add(f"{name.replace('.', '/')}/{inside}")
    return found


def test_the_wheel_holds_exactly_the_modules_and_data_files_of_the_tree(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == files_of_the_tree()


def test_every_module_of_the_wheel_imports_from_a_fresh_location(
    wheel: Path, tmp_path: Path
) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    modules = sorted(
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in files_of_the_tree()
        if name.endswith(".py") and not name.endswith(RUN_BY_OTHERS)
    )
    program = (
        "import importlib, sys\n"
        "site = sys.argv[1]\n"
        "sys.path.insert(0, site)\n"
        "for name in sys.argv[2:]:\n"
        "    module = importlib.import_module(name)\n"
        "    assert module.__file__.startswith(site), module.__file__\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "site"), *modules],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
