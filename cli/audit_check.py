"""Checking the coordinator's proofs with this machine's own code."""

from typing import Any

from fedward.protocol.errors import InvalidProof
from fedward.protocol.merkle import verify_inclusion

from .errors import CliError


def check_inclusion(proof: dict[str, Any], *, seq: int, root: str) -> None:
    """Check that record `seq` is in the tree with this root.

    Raises:
        CliError: the proof is for another record or root, or does not hold.
    """
    if proof["seq"] != seq or proof["root"] != root:
        raise CliError(
            f"the proof is for record {proof['seq']} and root {proof['root']}, "
            f"expected record {seq} and root {root}"
        )
    try:
        verify_inclusion(
            bytes.fromhex(proof["leaf_hash"]),
            seq - 1,
            proof["size"],
            [bytes.fromhex(node) for node in proof["proof"]],
            bytes.fromhex(root),
        )
    except InvalidProof as error:
        raise CliError(f"record {seq}: {error}") from error
