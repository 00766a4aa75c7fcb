"""What the repository must and must not hold."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
# Written in halves, so that this file does not name them either.
HOSTS = [
    "pypi" + ".org",
    "python" + "hosted.org",
    "npm" + "js.org",
    "debian" + ".org",
    "pytorch" + ".org",
    "crates" + ".io",
    "anaconda" + ".org",
    "--" + "index-url",
    "--extra-" + "index-url",
]


def tracked_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"],  # noqa: S607  git stands where PATH says
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [ROOT / name for name in listed.stdout.split("\0") if name]


def test_no_top_level_folder_hides_the_installed_package() -> None:
    assert not (ROOT / "fedward").exists()


@pytest.mark.parametrize("host", HOSTS)
def test_no_file_names_a_package_registry(host: str) -> None:
    named = [
        str(path.relative_to(ROOT))
        for path in tracked_files()
        if path.is_file() and host.encode() in path.read_bytes()
    ]
    assert named == []


def test_no_file_names_a_folder_of_one_machine() -> None:
    pattern = re.compile(rb"/(?:home|root|work)/[a-z]")
    named = [
        str(path.relative_to(ROOT))
        for path in tracked_files()
        if path.is_file() and path != Path(__file__) and pattern.search(path.read_bytes())
    ]
    assert named == []


def test_constraints_pin_one_version_each() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    malformed = [pin for pin in pins if not re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*", pin)]
    assert malformed == []
    names = [pin.partition("==")[0] for pin in pins]
    assert names == sorted(set(names))


def test_constraints_pin_every_declared_dependency() -> None:
    declared = list(PROJECT["project"]["dependencies"])
    for extra in PROJECT["project"]["optional-dependencies"].values():
        declared += extra
    names = {re.split(r"[\[<>=!~ ]", text)[0].lower().replace("_", "-") for text in declared}
    text = (ROOT / "constraints.txt").read_text()
    assert [name for name in sorted(names) if f"\n{name}==" not in text] == []


def test_every_package_of_the_tree_is_declared() -> None:
    setuptools = PROJECT["tool"]["setuptools"]
    found = set()
    for name, folder in setuptools["package-dir"].items():
        for path in (ROOT / folder).rglob("*.py"):
            parts = path.parent.relative_to(ROOT / folder).parts
            found.add(".".join((name, *parts)))
    assert found == set(setuptools["packages"])
