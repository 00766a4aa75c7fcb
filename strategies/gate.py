"""The gate: what must hold of an update before it may be combined.

An update is refused by name or taken whole; nothing is repaired, clipped or guessed.
"""

from __future__ import annotations

from math import isfinite

from fedward.protocol.arrays import Arrays, Schema, require_finite, require_schema, schema_of
from fedward.protocol.documents import WeightRules
from fedward.strategies.errors import WeightInvalid, WeightMissing, WeightOverCap


def check_update(update: Arrays, expected: Schema) -> None:
    """Check the names, dtypes and shapes of an update, and that all its values are finite.

    It does not depend on the weight: an update of weight 0 that holds a NaN is refused.

    Raises:
        SchemaMismatch: names what differs.
        NonFinite: names the arrays and counts the values.
    """
    require_schema(schema_of(update), expected)
    require_finite(update)


def resolve_weight(num_examples: float | None, rules: WeightRules) -> float:
    """Return the weight of an update whose reply states `num_examples`.

    A stated number is checked however updates are weighted. By `uniform` every update weighs
    1, but one that states 0 examples weighs 0: its site had nothing to learn from.

    Raises:
        WeightMissing: none is stated and the plan has no fallback.
        WeightInvalid: it is NaN, infinite or negative.
        WeightOverCap: it is above the plan's cap.
    """
    if num_examples is not None:
        _check_count(num_examples, rules.cap)
    if rules.by == "uniform":
        return 0.0 if num_examples == 0 else 1.0
    if num_examples is not None:
        return float(num_examples)
    if rules.missing is None:
        raise WeightMissing("num-examples: got none, expected a number (the plan has no fallback)")
    _check_count(rules.missing, rules.cap)
    return float(rules.missing)


def _check_count(count: float, cap: float) -> None:
    if not isfinite(count) or count < 0:
        raise WeightInvalid(f"num-examples: got {count}, expected a finite number >= 0")
    if count > cap:
        raise WeightOverCap(f"num-examples: got {count}, expected at most {cap} (the plan's cap)")
