"""A bundle is unpacked inside its folder, whole, or refused."""

import stat
import zipfile

import pytest

from fedward.client.bundles import clientapp_of, unpack_bundle
from fedward.client.errors import TaskFailed

DIGEST = "sha256:" + "1" * 64
MANIFEST = '[tool.flwr.app.components]\nclientapp = "pkg.client_app:app"\n'


def pack(tmp_path, *entries):
    with zipfile.ZipFile(tmp_path / "app.zip", "w") as bundle:
        for name, text in entries:
            bundle.writestr(name, text)
    return unpack_bundle(tmp_path / "app.zip", digest=DIGEST, folder=tmp_path / "apps")


def test_an_app_is_unpacked_under_its_digest_and_names_its_clientapp(tmp_path):
    app = pack(tmp_path, ("pyproject.toml", MANIFEST), ("pkg/client_app.py", "app = 1"))
    assert app == tmp_path / "apps" / ("1" * 64)
    assert (app / "pkg" / "client_app.py").read_text() == "app = 1"
    assert clientapp_of(app) == "pkg.client_app:app"


def link(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    return entry


@pytest.mark.parametrize(
    "entries",
    [
        [("../evil.py", "")],
        [("/etc/evil.py", "")],
        [("a/../../evil.py", "")],
        [("a\\..\\evil.py", "")],
        [(link("link"), "/etc/passwd")],
        [("A.py", "1"), ("a.py", "2")],
        [("a", "1"), ("a/b", "2")],
    ],
    ids=["parent", "absolute", "inner-parent", "backslash", "link", "case", "file-and-folder"],
)
def test_a_name_that_is_not_a_plain_file_inside_is_refused(tmp_path, entries):
    with pytest.raises(TaskFailed, match="app-invalid"):
        pack(tmp_path, *entries)
    assert not (tmp_path / "apps" / ("1" * 64)).exists()
    assert not (tmp_path / "evil.py").exists()


def test_a_damaged_archive_is_refused(tmp_path):
    (tmp_path / "app.zip").write_bytes(b"PK\x03\x04 no zip")
    with pytest.raises(TaskFailed, match="app-invalid"):
        unpack_bundle(tmp_path / "app.zip", digest=DIGEST, folder=tmp_path / "apps")


@pytest.mark.parametrize("manifest", ["", "[tool", '[tool.flwr.app.components]\nclientapp = "x"'])
def test_an_app_without_a_clientapp_is_refused(tmp_path, manifest):
    app = pack(tmp_path, ("pyproject.toml", manifest))
    with pytest.raises(TaskFailed, match="clientapp"):
        clientapp_of(app)


@pytest.mark.parametrize("value", ["[" * 5000 + "]" * 5000, "1" * 5000])
def test_a_manifest_that_is_nested_or_long_beyond_measure_names_no_clientapp(tmp_path, value):
    (tmp_path / "pyproject.toml").write_text(f"{MANIFEST}a = {value}\n")
    with pytest.raises(TaskFailed, match="names no clientapp"):
        clientapp_of(tmp_path)
