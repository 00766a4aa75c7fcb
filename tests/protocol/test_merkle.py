"""Known answers are those of certificate-transparency's merkle tests (RFC 6962 and 9162)."""

import hashlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedward.protocol.errors import InvalidProof
from fedward.protocol.merkle import (
    EMPTY_ROOT,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    new_nodes,
    node_hash,
    root,
    verify_consistency,
    verify_inclusion,
)

LEAVES = [
    bytes.fromhex(text)
    for text in (
        "", "00", "10", "2021", "3031", "40414243", "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]  # fmt: skip
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]


class StoredTree:
    """Keeps what `new_nodes` returns, as a table would, and refuses to write a node twice."""

    def __init__(self, leaves: list[bytes]) -> None:
        self.nodes: dict[tuple[int, int], bytes] = {}
        self.size = 0
        for leaf in leaves:
            self.append(leaf)

    def append(self, leaf: bytes) -> int:
        added = new_nodes(self.size, leaf_hash(leaf), self.read)
        for level, index, digest in added:
            assert (level, index) not in self.nodes
            self.nodes[level, index] = digest
        self.size += 1
        return len(added)

    def read(self, level: int, index: int, /) -> bytes:
        return self.nodes[level, index]


def recursive_root(leaves: list[bytes]) -> bytes:
    """The definition in RFC 9162, section 2.1.1, word for word."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return leaf_hash(leaves[0])
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    return node_hash(recursive_root(leaves[:split]), recursive_root(leaves[split:]))


def numbered(count: int) -> list[bytes]:
    return [str(n).encode() for n in range(count)]


def test_the_empty_tree_has_the_hash_of_nothing_as_its_root() -> None:
    assert EMPTY_ROOT.hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert root(0, StoredTree([]).read) == EMPTY_ROOT


@pytest.mark.parametrize("size", range(1, 9))
def test_roots_of_the_certificate_transparency_leaves(size: int) -> None:
    tree = StoredTree(LEAVES)
    assert root(size, tree.read).hex() == ROOTS[size - 1]


@pytest.mark.parametrize(
    ("index", "size", "path"),
    [
        (0, 1, []),
        (0, 8, ["96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
                "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
                "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4"]),
        (5, 8, ["bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
                "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
                "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7"]),
        (2, 3, ["fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"]),
        (1, 5, ["6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
                "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
                "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b"]),
    ],
)  # fmt: skip
def test_inclusion_proofs_of_certificate_transparency(
    index: int, size: int, path: list[str]
) -> None:
    proof = inclusion_proof(index, size, StoredTree(LEAVES).read)
    assert [digest.hex() for digest in proof] == path
    verify_inclusion(leaf_hash(LEAVES[index]), index, size, proof, bytes.fromhex(ROOTS[size - 1]))


@pytest.mark.parametrize(
    ("first", "second", "path"),
    [
        (1, 1, []),
        (1, 8, ["96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
                "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
                "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4"]),
        (6, 8, ["0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
                "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
                "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7"]),
        (2, 5, ["5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
                "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b"]),
    ],
)  # fmt: skip
def test_consistency_proofs_of_certificate_transparency(
    first: int, second: int, path: list[str]
) -> None:
    proof = consistency_proof(first, second, StoredTree(LEAVES).read)
    assert [digest.hex() for digest in proof] == path
    old, new = bytes.fromhex(ROOTS[first - 1]), bytes.fromhex(ROOTS[second - 1])
    verify_consistency(first, second, proof, old, new)


@given(st.integers(0, 130))
def test_the_stored_tree_has_the_root_of_the_recursive_definition(size: int) -> None:
    leaves = numbered(size)
    assert root(size, StoredTree(leaves).read) == recursive_root(leaves)


@given(st.integers(0, 300))
def test_an_append_adds_one_node_per_subtree_that_it_completes(size: int) -> None:
    tree = StoredTree(numbered(size))
    completed = (size ^ (size + 1)).bit_length()  # trailing ones of `size`, and the leaf
    assert tree.append(b"x") == completed


@given(st.integers(1, 130), st.data())
def test_every_leaf_has_an_inclusion_proof(size: int, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, size - 1))
    tree = StoredTree(numbered(size))
    proof = inclusion_proof(index, size, tree.read)
    assert len(proof) <= (size - 1).bit_length()
    verify_inclusion(leaf_hash(str(index).encode()), index, size, proof, root(size, tree.read))


@given(st.integers(0, 130), st.data())
def test_every_older_tree_has_a_consistency_proof(second: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, second))
    tree = StoredTree(numbered(second))
    proof = consistency_proof(first, second, tree.read)
    verify_consistency(
        first, second, proof, root(first, tree.read), root(second, tree.read)
    )  # fmt: skip


def refused(call: Callable[[], None]) -> bool:
    try:
        call()
    except InvalidProof:
        return True
    return False


def changed(proof: list[bytes], data: st.DataObject) -> list[bytes]:
    """A proof with one bit flipped, one hash doubled, one dropped, or one too many."""
    how = data.draw(st.sampled_from(["bit", "drop", "twice", "extra"] if proof else ["extra"]))
    at = data.draw(st.integers(0, max(0, len(proof) - 1)))
    if how == "extra":
        return [*proof, b"\x00" * 32]
    if how == "drop":
        return proof[:at] + proof[at + 1 :]
    if how == "twice":
        return proof[: at + 1] + proof[at:]
    flipped = bytes([proof[at][0] ^ 1]) + proof[at][1:]
    return [*proof[:at], flipped, *proof[at + 1 :]]


@given(st.integers(1, 70), st.data())
def test_a_changed_inclusion_proof_is_refused(size: int, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, size - 1))
    tree = StoredTree(numbered(size))
    top, leaf = root(size, tree.read), leaf_hash(str(index).encode())
    proof = inclusion_proof(index, size, tree.read)
    other = data.draw(st.integers(0, size - 1).filter(lambda n: n != index)) if size > 1 else size
    assert refused(lambda: verify_inclusion(leaf, index, size, changed(proof, data), top))
    assert refused(lambda: verify_inclusion(leaf, other, size, proof, top))
    assert refused(lambda: verify_inclusion(leaf_hash(b"x"), index, size, proof, top))


@given(st.integers(1, 70), st.data())
def test_a_changed_consistency_proof_is_refused(second: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(1, second))
    tree = StoredTree(numbered(second))
    old, new = root(first, tree.read), root(second, tree.read)
    proof = consistency_proof(first, second, tree.read)
    assert refused(lambda: verify_consistency(first, second, changed(proof, data), old, new))
    assert refused(lambda: verify_consistency(first, second, proof, leaf_hash(b"x"), new))
    assert refused(lambda: verify_consistency(first, second, proof, old, leaf_hash(b"x")))


def test_a_history_that_was_rewritten_has_no_consistency_proof() -> None:
    honest, rewritten = StoredTree(numbered(7)), StoredTree([b"x", *numbered(12)[1:]])
    proof = consistency_proof(7, 12, rewritten.read)
    with pytest.raises(InvalidProof, match="first root"):
        verify_consistency(7, 12, proof, root(7, honest.read), root(12, rewritten.read))


def test_a_node_cannot_be_passed_off_as_a_leaf() -> None:
    left, right = leaf_hash(b"a"), leaf_hash(b"b")
    assert leaf_hash(left + right) != node_hash(left, right)


@pytest.mark.parametrize(("index", "size"), [(-1, 3), (3, 3), (0, 0), (5, 3)])
def test_a_leaf_outside_the_tree_is_refused(index: int, size: int) -> None:
    with pytest.raises(ValueError, match="is not in a tree"):
        inclusion_proof(index, size, StoredTree(LEAVES).read)
    with pytest.raises(InvalidProof, match="expected one of"):
        verify_inclusion(leaf_hash(b""), index, size, [], EMPTY_ROOT)


@pytest.mark.parametrize(("first", "second"), [(-1, 3), (4, 3)])
def test_a_tree_that_shrinks_is_refused(first: int, second: int) -> None:
    with pytest.raises(ValueError, match="cannot extend"):
        consistency_proof(first, second, StoredTree(LEAVES).read)
    with pytest.raises(InvalidProof, match="expected no less"):
        verify_consistency(first, second, [], EMPTY_ROOT, EMPTY_ROOT)


def test_a_negative_size_is_the_callers_mistake() -> None:
    with pytest.raises(ValueError, match="-1 leaves"):
        root(-1, StoredTree([]).read)
    with pytest.raises(ValueError, match="-2 leaves"):
        new_nodes(-2, leaf_hash(b""), StoredTree([]).read)


def test_edge_cases_of_consistency_are_checked_too() -> None:
    top = bytes.fromhex(ROOTS[7])
    verify_consistency(0, 8, [], EMPTY_ROOT, top)
    verify_consistency(8, 8, [], top, top)
    assert refused(lambda: verify_consistency(0, 8, [], top, top))
    assert refused(lambda: verify_consistency(0, 8, [top], EMPTY_ROOT, top))
    assert refused(lambda: verify_consistency(0, 0, [], EMPTY_ROOT, top))
    assert refused(lambda: verify_consistency(8, 8, [], top, EMPTY_ROOT))
    assert refused(lambda: verify_consistency(3, 8, [], top, top))
    assert refused(lambda: verify_consistency(3, 8, [b"short"], top, top))


def test_a_smaller_tree_cannot_be_passed_off_as_a_larger_one() -> None:
    leaf = leaf_hash(b"a")  # it is the root of the tree of one leaf
    with pytest.raises(InvalidProof, match="too short"):
        verify_inclusion(leaf, 0, 2, [], leaf)
    with pytest.raises(InvalidProof, match="too short"):
        verify_consistency(1, 2, [], leaf, leaf)


def test_hashes_of_another_length_are_refused_though_they_would_fit_together() -> None:
    left, right = leaf_hash(b"a"), leaf_hash(b"b")
    with pytest.raises(InvalidProof, match="got 33 bytes, expected 32"):
        verify_inclusion(left + right[:1], 0, 2, [right[1:]], node_hash(left, right))
