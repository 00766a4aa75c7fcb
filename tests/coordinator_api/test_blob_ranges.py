import pytest

from fedward.coordinator.api.blob_ranges import read_range
from fedward.coordinator.api.problems import RequestRefused
from fedward.protocol.documents import MAX_CHUNK_BYTES

DIGEST = "sha256:" + "0" * 64


@pytest.fixture
def blob(tmp_path):
    path = tmp_path / "blob"
    path.write_bytes(bytes(range(100)))
    return path


@pytest.mark.parametrize(
    ("header", "first", "last"),
    [
        ("bytes=0-9", 0, 9),
        ("bytes=90-", 90, 99),
        ("bytes=90-5000", 90, 99),
        ("bytes=99-99", 99, 99),
    ],
)
def test_a_range_is_answered_with_its_bytes_and_place(blob, header, first, last):
    answer = read_range(blob, header, digest=DIGEST)
    assert answer.status_code == 206
    assert answer.body == bytes(range(first, last + 1))
    assert answer.headers["content-range"] == f"bytes {first}-{last}/100"


def test_a_small_blob_is_sent_whole_without_a_range(blob):
    answer = read_range(blob, None, digest=DIGEST)
    assert (answer.status_code, answer.body) == (200, bytes(range(100)))


@pytest.mark.parametrize(
    ("header", "status"),
    [("bytes=100-", 416), ("bytes=-5", 400), ("bytes=5-4", 400), ("lines=1-2", 400),
     ("bytes=0-1,4-5", 400), ("bytes=\u0660-\u0669", 400)],
)  # fmt: skip
def test_a_range_that_is_malformed_or_outside_is_refused(blob, header, status):
    with pytest.raises(RequestRefused) as caught:
        read_range(blob, header, digest=DIGEST)
    assert (caught.value.name, caught.value.status) == ("invalid-range", status)


def test_a_large_blob_comes_in_chunks(tmp_path):
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(MAX_CHUNK_BYTES + 5)
    with pytest.raises(RequestRefused, match="fetch it in ranges"):
        read_range(path, None, digest=DIGEST)
    first = read_range(path, "bytes=0-", digest=DIGEST)
    rest = read_range(path, f"bytes={MAX_CHUNK_BYTES}-", digest=DIGEST)
    assert (len(first.body), len(rest.body)) == (MAX_CHUNK_BYTES, 5)


def test_an_empty_blob_is_sent_whole(tmp_path):
    path = tmp_path / "empty"
    path.touch()
    assert read_range(path, None, digest=DIGEST).body == b""
