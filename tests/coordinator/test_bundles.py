"""Zips of Flower apps: what is taken and what is refused before anybody unpacks it."""

import io
import stat
import warnings
import zipfile

import pytest

from fedward.coordinator import bundles
from fedward.coordinator.bundles import read_bundle
from fedward.coordinator.errors import LimitExceeded, UpdateRefused

from .federation import ADMIN, Federation

MANIFEST = """
[project]
name = "digits"
version = "1.0.0"
[tool.flwr.app]
publisher = "somebody"
[tool.flwr.app.components]
clientapp = "digits.client_app:app"
serverapp = "digits.server_app:app"
[tool.flwr.app.config]
local-epochs = 2
model.hidden = 32
"""


def pack(files: dict[str, str] | None = None, *, extra: zipfile.ZipInfo | None = None) -> bytes:
    content = {"pyproject.toml": MANIFEST, "digits/client_app.py": "app = None\n"} | (files or {})
    buffer = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        warnings.simplefilter("ignore")  # zipfile warns of doubled names
        for name, text in content.items():
            archive.writestr(zipfile.ZipInfo(name), text)  # no file time: the same bytes each call
        if extra is not None:
            archive.writestr(extra, "target")
    return buffer.getvalue()


def test_a_flower_app_is_described() -> None:
    bundle = read_bundle(pack({"digits/__init__.py": ""}))
    assert (bundle.name, bundle.version, bundle.clientapp) == (
        "digits",
        "1.0.0",
        "digits.client_app:app",
    )
    assert bundle.config == {"local-epochs": 2, "model.hidden": 32}
    assert bundle.files == ("digits/__init__.py", "digits/client_app.py", "pyproject.toml")


@pytest.mark.parametrize(
    "name",
    [
        "../evil.py",
        "/etc/passwd",
        "a/../../b",
        "a\\b.py",
        "C:/x.py",
        "a//b.py",
        "./a.py",
        "x\x00.py",
        "dir /a.py",
        "nul.",
    ],
)
def test_a_path_that_leaves_the_folder_is_refused(name: str) -> None:
    data = pack(extra=zipfile.ZipInfo(name.replace("\x00", "N")))
    if "\x00" in name:  # zipfile itself would cut the name there
        data = data.replace(b"xN.py", name.encode())
    with pytest.raises(UpdateRefused, match="not a plain relative path"):
        read_bundle(data)


def test_a_link_is_refused() -> None:
    link = zipfile.ZipInfo("digits/data")
    link.create_system, link.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    with pytest.raises(UpdateRefused, match="neither a plain file nor a folder"):
        read_bundle(pack(extra=link))


@pytest.mark.parametrize("name", ["pyproject.toml", "PyProject.toml", "digits/Client_App.py"])
def test_a_doubled_name_is_refused(name: str) -> None:
    with pytest.raises(UpdateRefused, match="comes twice"):
        read_bundle(pack(extra=zipfile.ZipInfo(name)))


def test_a_file_that_is_a_folder_too_is_refused() -> None:
    with pytest.raises(UpdateRefused, match="is a folder, too"):
        read_bundle(pack(extra=zipfile.ZipInfo("digits")))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('clientapp = "digits.client_app:app"', "", "clientapp: got 'None'"),
        ("digits.client_app:app", "digits.missing:app", "has no digits/missing.py"),
        ("digits.client_app:app", "os; import x", "expected 'package.module:name'"),
        ('name = "digits"', "", r"\[project\] name"),
        ("local-epochs = 2", "local-epochs = [1]", "local-epochs: got list"),
        ("local-epochs = 2", f"a = {'[' * 5000}{']' * 5000}", "nested too deeply"),
        ("local-epochs = 2", f"{'a.' * 5000}a = 1", "config.*: nested too deeply"),
        ("local-epochs = 2", f"a = {'1' * 5000}", "not TOML"),
        ("local-epochs = 2", "a = nan", "a: got nan, expected a finite number"),
        ("local-epochs = 2", "a = -inf", "a: got -inf, expected a finite number"),
        ("local-epochs = 2", f"a = '{'x' * 16385}'", "a: got 16385 characters"),
        ("[project]", "[project", "not TOML"),
        ("[project]", "project = 1\n[x]", "project: got int, expected a table"),
    ],
)
def test_a_manifest_that_names_no_app_is_refused(old: str, new: str, reason: str) -> None:
    with pytest.raises(UpdateRefused, match=reason):
        read_bundle(pack({"pyproject.toml": MANIFEST.replace(old, new)}))


@pytest.mark.parametrize("data", [b"", b"PK", pack()[:-30]])
def test_what_is_no_zip_is_refused(data: bytes) -> None:
    with pytest.raises(UpdateRefused):
        read_bundle(data)


def test_damaged_content_is_refused() -> None:
    data = bytearray(pack({"digits/big.txt": "".join(map(str, range(5000)))}))
    data[len(data) // 2] ^= 0xFF
    with pytest.raises(UpdateRefused, match="not a readable zip"):
        read_bundle(bytes(data))


def test_an_archive_that_unpacks_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundles, "MAX_UNPACKED_BYTES", 10_000)
    with pytest.raises(LimitExceeded, match="unpacks to more"):
        read_bundle(pack({"digits/zeros.txt": "0" * 20_000}))


def test_an_app_is_kept_by_its_digest_once(federation: Federation) -> None:
    service = federation.coordinator
    made = service.add_app(ADMIN, pack())
    assert service.add_app(ADMIN, pack()).digest == made.digest
    assert [app.digest for app in service.list_apps().items] == [made.digest]
    assert federation.blobs.path(made.digest).read_bytes() == pack()
