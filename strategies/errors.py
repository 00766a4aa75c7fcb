"""Errors of the strategies.

StrategyError
├── StrategyInvalid       a plan names no known strategy, or parameters that do not fit
├── WeightRefused         an update's weight is not believed
│   ├── WeightMissing     the reply has no number of examples and the plan has no fallback
│   ├── WeightInvalid     NaN, infinite or negative
│   └── WeightOverCap     more than the plan believes
├── NoData                the updates weigh nothing together
└── Overflow              the result does not fit the array's dtype

`reason` is the stable name that records and answers show. Arrays that do not fit are refused
with `fedward.protocol.errors.SchemaMismatch` and `NonFinite`, which have a `reason` too.
"""

from typing import ClassVar


class StrategyError(Exception):
    """Updates cannot become a model version in the way that was asked for."""

    reason: ClassVar[str] = "strategy-error"


class StrategyInvalid(StrategyError):
    """A plan's strategy cannot be built; `reasons` lists all that is wrong."""

    reason = "strategy-invalid"

    def __init__(self, reasons: list[str]) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = reasons


class WeightRefused(StrategyError):
    """An update's weight is not believed."""

    reason = "weight-refused"


class WeightMissing(WeightRefused):
    """The reply has no number of examples and the plan has no fallback."""

    reason = "weight-missing"


class WeightInvalid(WeightRefused):
    """NaN, infinite or negative."""

    reason = "weight-invalid"


class WeightOverCap(WeightRefused):
    """More than the plan believes."""

    reason = "weight-over-cap"


class NoData(StrategyError):
    """The updates weigh nothing together: there is nothing to learn from."""

    reason = "no-data"


class Overflow(StrategyError):
    """A result does not fit the array's dtype."""

    reason = "overflow"
