"""What of an app directory is sent, and that the same files give the same bytes."""

import os
import zipfile
from pathlib import Path

import pytest

from fedward.cli.bundle import write_bundle
from fedward.cli.errors import InvalidFile

PYPROJECT = """
[project]
name = "digits"
version = "1.0"
[tool.flwr.app.components]
clientapp = "digits.client_app:app"
"""


@pytest.fixture
def app_dir(tmp_path: Path) -> Path:
    directory = tmp_path / "app"
    (directory / "digits" / "__pycache__").mkdir(parents=True)
    (directory / ".git").mkdir()
    (directory / "pyproject.toml").write_text(PYPROJECT)
    (directory / "digits" / "client_app.py").write_text("app = None\n")
    (directory / "digits" / "__pycache__" / "client_app.cpython-311.pyc").write_bytes(b"x")
    (directory / "digits" / "patients.csv").write_text("name,age\n")
    (directory / "digits" / "test_client_app.py").write_text("")
    (directory / ".git" / "config.toml").write_text("")
    return directory


def test_code_and_settings_are_sent_and_data_stays(app_dir: Path, tmp_path: Path) -> None:
    files = write_bundle(app_dir, tmp_path / "a.zip")
    assert zipfile.ZipFile(tmp_path / "a.zip").namelist() == [
        "digits/client_app.py",
        "pyproject.toml",
    ]
    assert [str(name) for name in files.left_out] == [
        "digits/patients.csv",
        "digits/test_client_app.py",
    ]


def test_the_same_files_give_the_same_bytes(app_dir: Path, tmp_path: Path) -> None:
    write_bundle(app_dir, tmp_path / "a.zip")
    os.utime(app_dir / "pyproject.toml", (1, 1))
    (app_dir / "digits" / "client_app.py").chmod(0o755)
    write_bundle(app_dir, tmp_path / "b.zip")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_a_symbolic_link_is_refused(app_dir: Path, tmp_path: Path) -> None:
    (app_dir / "digits" / "other.py").symlink_to("/etc/hostname")
    with pytest.raises(InvalidFile, match=r"other\.py: got a symbolic link"):
        write_bundle(app_dir, tmp_path / "a.zip")


@pytest.mark.parametrize("text", ["", "[tool.flwr]\napp = 3\n", "not toml ["])
def test_a_folder_that_names_no_clientapp_is_refused(
    text: str, app_dir: Path, tmp_path: Path
) -> None:
    (app_dir / "pyproject.toml").write_text(text)
    with pytest.raises(InvalidFile, match=r"pyproject\.toml"):
        write_bundle(app_dir, tmp_path / "a.zip")


@pytest.mark.parametrize("value", ["[" * 5000 + "]" * 5000, "1" * 5000])
def test_a_manifest_nested_or_long_beyond_measure_is_refused(
    app_dir: Path, tmp_path: Path, value: str
) -> None:
    (app_dir / "pyproject.toml").write_text(f"{PYPROJECT}a = {value}\n")
    with pytest.raises(InvalidFile, match=r"pyproject\.toml"):
        write_bundle(app_dir, tmp_path / "a.zip")
