"""The Merkle tree of RFC 9162 (section 2.1) over stored nodes, and its proofs.

Only complete subtrees are stored: node (level, index) is the hash over the 2**level leaves
that begin at index * 2**level. They never change once written, so an append-only table can
serve them; every root and proof is computed from O(log n) of them. Where they are stored is
the caller's business (`NodeReader`).

Laws: appending the nodes of `new_nodes` one leaf after another gives the root of RFC 9162's
recursive definition; a proof made by this module verifies; a verifier raises and never
returns a bool.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Protocol

from fedward.protocol.errors import InvalidProof

HASH_BYTES = 32
EMPTY_ROOT = hashlib.sha256(b"").digest()
"""Root of the tree without leaves."""


class NodeReader(Protocol):
    """Reads the hash of a complete subtree that was stored before."""

    def __call__(self, level: int, index: int, /) -> bytes:
        """Return the 32 bytes of node (level, index)."""
        ...


def leaf_hash(data: bytes) -> bytes:
    """Return the hash of a leaf; the prefix keeps a node from being passed off as a leaf."""
    return hashlib.sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of an inner node over its two children."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def new_nodes(size: int, leaf: bytes, read: NodeReader) -> list[tuple[int, int, bytes]]:
    """Return the nodes (level, index, hash) that appending a leaf to `size` leaves adds.

    `leaf` is the leaf's hash. The list starts with the leaf itself.
    """
    _check_size(size)
    level, index, current = 0, size, leaf
    nodes = [(level, index, current)]
    while index % 2 == 1:
        current = node_hash(read(level, index - 1), current)
        level, index = level + 1, index // 2
        nodes.append((level, index, current))
    return nodes


def root(size: int, read: NodeReader) -> bytes:
    """Return the root over the first `size` leaves."""
    _check_size(size)
    return _range_hash(0, size, read) if size else EMPTY_ROOT


def inclusion_proof(index: int, size: int, read: NodeReader) -> list[bytes]:
    """Return the path of leaf `index` in the tree of `size` leaves (RFC 9162, 2.1.3.1)."""
    if not 0 <= index < size:
        raise ValueError(f"leaf {index} is not in a tree of {size} leaves")
    path: list[bytes] = []
    start, end = 0, size
    while end - start > 1:
        middle = start + _split(end - start)
        if index < middle:
            path.append(_range_hash(middle, end, read))
            end = middle
        else:
            path.append(_range_hash(start, middle, read))
            start = middle
    return path[::-1]


def consistency_proof(first: int, second: int, read: NodeReader) -> list[bytes]:
    """Return the proof that `second` leaves begin with the first `first` (RFC 9162, 2.1.4.1).

    It is empty where `first` is 0 or equals `second`.
    """
    if not 0 <= first <= second:
        raise ValueError(f"a tree of {second} leaves cannot extend one of {first}")
    if first in {0, second}:
        return []
    path: list[bytes] = []
    start, end, known = 0, second, True  # known: the old root is this very subtree
    while first != end:
        middle = start + _split(end - start)
        if first <= middle:
            path.append(_range_hash(middle, end, read))
            end = middle
        else:
            path.append(_range_hash(start, middle, read))
            start, known = middle, False
    if not known:
        path.append(_range_hash(start, end, read))
    return path[::-1]


def verify_inclusion(
    leaf: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes
) -> None:
    """Check that the leaf hash `leaf` is number `index` of the `size` leaves under `root`.

    Raises:
        InvalidProof: it is not, or the proof has the wrong form (RFC 9162, 2.1.3.2).
    """
    if not 0 <= index < size:
        raise InvalidProof(f"inclusion: got leaf {index}, expected one of 0..{size - 1}")
    _check_hashes(leaf, root, *proof)
    node, last, current = index, size - 1, leaf
    for sibling in proof:
        if last == 0:
            raise InvalidProof(f"inclusion of leaf {index} in {size}: the proof is too long")
        if node % 2 == 1 or node == last:
            current = node_hash(sibling, current)
            while node % 2 == 0 and node != 0:
                node, last = node >> 1, last >> 1
        else:
            current = node_hash(current, sibling)
        node, last = node >> 1, last >> 1
    if last != 0:
        raise InvalidProof(f"inclusion of leaf {index} in {size}: the proof is too short")
    _expect("inclusion", got=current, expected=root)


def verify_consistency(
    first: int, second: int, proof: Sequence[bytes], first_root: bytes, second_root: bytes
) -> None:
    """Check that the tree under `second_root` begins with the one under `first_root`.

    Raises:
        InvalidProof: it does not, or the proof has the wrong form (RFC 9162, 2.1.4.2).
    """
    if not 0 <= first <= second:
        raise InvalidProof(f"consistency: got size {second} after {first}, expected no less")
    _check_hashes(first_root, second_root, *proof)
    if first in {0, second}:
        if proof:
            raise InvalidProof(f"consistency of {first} and {second}: expected an empty proof")
        if first == 0:
            _expect("consistency, empty tree", got=first_root, expected=EMPTY_ROOT)
        if first == second:
            _expect("consistency, equal sizes", got=second_root, expected=first_root)
        return
    path = [first_root, *proof] if first & (first - 1) == 0 else list(proof)
    old, new = _fold_consistency(first, second, path)
    _expect("consistency, first root", got=old, expected=first_root)
    _expect("consistency, second root", got=new, expected=second_root)


def _fold_consistency(first: int, second: int, path: list[bytes]) -> tuple[bytes, bytes]:
    """Return the two roots that the path implies."""
    if not path:
        raise InvalidProof(f"consistency of {first} and {second}: the proof is empty")
    node, last = first - 1, second - 1
    while node % 2 == 1:
        node, last = node >> 1, last >> 1
    old = new = path[0]
    for sibling in path[1:]:
        if last == 0:
            raise InvalidProof(f"consistency of {first} and {second}: the proof is too long")
        if node % 2 == 1 or node == last:
            old, new = node_hash(sibling, old), node_hash(sibling, new)
            while node % 2 == 0 and node != 0:
                node, last = node >> 1, last >> 1
        else:
            new = node_hash(new, sibling)
        node, last = node >> 1, last >> 1
    if last != 0:
        raise InvalidProof(f"consistency of {first} and {second}: the proof is too short")
    return old, new


def _range_hash(start: int, end: int, read: NodeReader) -> bytes:
    """Return the hash over leaves [start, end), where `start` is a multiple of the split."""
    size = end - start
    if size & (size - 1) == 0:
        level = size.bit_length() - 1
        return read(level, start >> level)
    middle = start + _split(size)
    return node_hash(_range_hash(start, middle, read), _range_hash(middle, end, read))


def _split(size: int) -> int:
    """Return the largest power of two below `size`."""
    return 1 << ((size - 1).bit_length() - 1)


def _check_size(size: int) -> None:
    if size < 0:
        raise ValueError(f"a tree has no {size} leaves")


def _check_hashes(*hashes: bytes) -> None:
    for value in hashes:
        if len(value) != HASH_BYTES:
            raise InvalidProof(f"hash: got {len(value)} bytes, expected {HASH_BYTES}")


def _expect(what: str, *, got: bytes, expected: bytes) -> None:
    if got != expected:
        raise InvalidProof(f"{what}: got {got.hex()}, expected {expected.hex()}")
