"""A disk without space: reads are served, writes answer 503, and all goes on when there is some."""

import errno
import io
import subprocess
import sys
import threading
import time
import zipfile

import httpx
import pytest

pytestmark = pytest.mark.flow
SIZE_BYTES = 6 * 1024**2


@pytest.fixture
def disk(folder):
    """A small file system of its own."""
    path = folder / "disk"
    path.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_BYTES}", "tmpfs", str(path)]
    on_linux = sys.platform == "linux"
    if not on_linux or subprocess.run(mounting, check=False, capture_output=True).returncode:
        pytest.skip("a small tmpfs could not be mounted here; it takes root")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)  # noqa: S607


@pytest.fixture
def bundle():
    """The smallest app."""
    manifest = '[project]\nname = "a"\nversion = "1"\n'
    manifest += '[tool.flwr.app.components]\nclientapp = "a:app"\n'
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("pyproject.toml", manifest)
        archive.writestr("a.py", "app = None\n")
    return packed.getvalue()


def fill(disk):
    """Take all space that is left; return the file to remove."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1024**2, 4096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError as error:
                assert error.errno == errno.ENOSPC
    return filler


def post(url, path, headers, **body):
    answer = httpx.post(f"{url}/api/v1/{path}", headers=headers, **body)
    return answer.status_code, answer.json().get("type")


def until_recorded(url, headers, *, size):
    """Wait until the audit log has `size` records: the first token's, then one for every start."""
    pause, until = threading.Event(), time.monotonic() + 30
    while httpx.get(f"{url}/api/v1/audit/head", headers=headers).json()["size"] < size:
        assert time.monotonic() < until, "the start was not recorded"
        pause.wait(0.1)


def require_reads_only(url, headers):
    for path in ("readyz", "api/v1/studies", "api/v1/audit/head"):
        assert httpx.get(f"{url}/{path}", headers=headers).status_code == 200, path
    refused = (503, "/problems/storage-unavailable")
    wanted = {"site": "hospital-a", "organisation": "A"}
    assert post(url, "sites/invite", headers, json=wanted) == refused


def test_a_full_disk_refuses_writes_and_serves_reads(disk, serving, model_file, bundle):
    refused = (503, "/problems/storage-unavailable")
    with serving(disk / "d") as (_, token, url):
        headers = {"Authorization": f"Bearer {token}"}
        filler = fill(disk)
        require_reads_only(url, headers)
        assert post(url, "models", headers, content=model_file * 1000) == refused
        assert post(url, "apps", headers, content=bundle) == refused
        filler.unlink()
        assert post(url, "models", headers, content=model_file) == (201, None)
        assert post(url, "apps", headers, content=bundle) == (201, None)


def test_a_killed_coordinator_starts_on_a_full_disk_and_goes_on_with_space(disk, serving):
    with serving(disk / "d") as (process, token, url):
        headers = {"Authorization": f"Bearer {token}"}
        until_recorded(url, headers, size=2)
        process.kill()
        process.communicate()
    filler = fill(disk)
    with serving(disk / "d") as (process, _, url):
        require_reads_only(url, headers)
        assert process.poll() is None
        filler.unlink()
        until_recorded(url, headers, size=3)


def test_a_stopped_coordinator_starts_on_a_full_disk(disk, serving):
    with serving(disk / "d") as (process, token, url):
        headers = {"Authorization": f"Bearer {token}"}
        process.terminate()
        process.communicate()
    fill(disk)
    with serving(disk / "d") as (_, _, url):  # SQLite's files are gone: the reserve makes room
        assert httpx.get(f"{url}/api/v1/studies", headers=headers).status_code == 200
