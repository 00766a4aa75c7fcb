"""Content-addressed files: whole or not at all, and removed only when nobody needs them."""

import os

import pytest

from fedward.client.cache import BlobFolder
from fedward.protocol.canonical import sha256_digest
from fedward.protocol.errors import InvalidDocument


@pytest.fixture
def folder(tmp_path):
    return BlobFolder(tmp_path / "blobs")


def test_pieces_are_stored_under_the_digest_of_the_whole(folder):
    digest, size = folder.put([b"ab", memoryview(b"cd"), b""])
    assert digest == sha256_digest(b"abcd")
    assert size == 4
    assert folder.path(digest).read_bytes() == b"abcd"
    assert folder.put([b"abcd"]) == (digest, 4)


def test_a_file_is_taken_over_by_its_content(folder, tmp_path):
    (tmp_path / "reply").write_bytes(b"xyz")
    digest, size = folder.take(tmp_path / "reply")
    assert (digest, size) == (sha256_digest(b"xyz"), 3)
    assert folder.has(digest)
    assert not (tmp_path / "reply").exists()


def test_only_what_is_named_is_kept(folder):
    digests = [folder.put([bytes([n])])[0] for n in range(3)]
    folder.keep_only({digests[1]})
    assert [folder.has(digest) for digest in digests] == [False, True, False]


def test_the_longest_unused_go_first_and_those_in_use_stay(folder):
    digests = [folder.put([bytes([n]) * 10])[0] for n in range(4)]
    for age, digest in enumerate(digests):
        os.utime(folder.path(digest), (1000 + age, 1000 + age))
    assert folder.has(digests[1])  # used just now
    folder.shrink(20, in_use={digests[0]})
    assert [folder.path(d).exists() for d in digests] == [True, True, False, False]


def test_what_was_half_fetched_stays_only_for_what_is_in_use(folder):
    digests = [sha256_digest(bytes([n])) for n in range(2)]
    for digest in digests:
        folder.partial(digest).write_bytes(b"half")
    folder.shrink(10**9, in_use={digests[0]})
    assert [folder.partial(d).exists() for d in digests] == [True, False]


def test_a_folder_to_which_nothing_was_added_is_not_looked_through(folder):
    (digest, _), limit = folder.put([b"0123456789"]), 10
    folder.shrink(limit, in_use=set())
    path = folder.path(digest)
    path.write_bytes(b"0" * 11)  # behind its back: who looks finds it too large
    folder.shrink(limit, in_use=set())
    assert path.exists()
    folder.partial(digest)
    folder.shrink(limit, in_use=set())
    assert not path.exists()


def test_what_is_too_large_while_in_use_goes_when_it_is_not(folder):
    digest, _ = folder.put([b"0123456789"])
    folder.shrink(5, in_use={digest})
    folder.shrink(5, in_use=set())
    assert not folder.path(digest).exists()


def test_a_name_that_is_no_digest_reaches_no_file(folder):
    with pytest.raises(InvalidDocument):
        folder.path("sha256:../../etc/passwd")
