"""What a plan may set for the recipe, and what is wrong with it, all at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from fedward.client.errors import TaskFailed
from fedward.protocol.documents import Scalar, TaskFailure

DEFAULTS: dict[str, Scalar] = {
    "target": "",
    "features": "",
    "positive": "",
    "model": "logistic",
    "hidden": "16",
    "epochs": 1,
    "batch-size": 32,
    "learning-rate": 0.1,
    "momentum": 0.0,
    "weight-decay": 0.0,
    "test-fraction": 0.2,
    "split-seed": 0,
}
"""All settings. `target` and `features` must be given; `batch-size` 0 is the whole data.

`features` and `hidden` (widths of the MLP's hidden layers) are comma lists. `positive` is the
target's value that counts as 1, needed where the values are not 0 and 1. `split-seed` decides
which rows are held out, the same in every round.
"""

MODELS = ("logistic", "mlp")
MAX_WIDTH = 1_000_000


@dataclass(frozen=True, slots=True)
class Settings:
    """Checked settings; `hidden` is empty for logistic regression."""

    target: str
    features: tuple[str, ...]
    positive: str
    hidden: tuple[int, ...]
    epochs: int
    batch_size: int
    learning_rate: float
    momentum: float
    weight_decay: float
    test_fraction: float
    split_seed: int

    @property
    def widths(self) -> tuple[int, ...]:
        """Widths of all layers, from the features to the one logit."""
        return (len(self.features), *self.hidden, 1)


class InvalidTabularSettings(TaskFailed):
    """The plan's settings for the recipe cannot be used; `reasons` lists why."""

    def __init__(self, reasons: list[str]) -> None:
        super().__init__(TaskFailure.PLAN_INVALID, "; ".join(reasons))
        self.reasons = reasons


def parse_settings(config: Mapping[str, Scalar]) -> Settings:
    """Check `config`, over the defaults.

    Raises:
        InvalidTabularSettings: lists every setting that is unknown, missing or out of range.
    """
    read = _Reader({**DEFAULTS, **config})
    read.reasons += [
        f"{name}: unknown, expected one of {sorted(DEFAULTS)}"
        for name in sorted(set(config) - set(DEFAULTS))
    ]
    model = read.one_of("model", MODELS)
    hidden = read.widths("hidden") if model == "mlp" else ()
    settings = Settings(
        target=read.text("target"),
        features=read.columns("features"),
        positive=str(read.values["positive"]).strip(),
        hidden=hidden,
        epochs=read.whole("epochs", low=1, high=100_000),
        batch_size=read.whole("batch-size", low=0, high=2**31),
        learning_rate=read.number("learning-rate", low=0.0, high=1e6),
        momentum=read.number("momentum", low=0.0, high=1.0),
        weight_decay=read.number("weight-decay", low=0.0, high=1e6),
        test_fraction=read.number("test-fraction", low=0.0, high=0.9),
        split_seed=read.whole("split-seed", low=0, high=2**53),
    )
    if settings.target and settings.target in settings.features:
        read.reasons.append(f"features: the target {settings.target!r} is among them")
    if read.reasons:
        raise InvalidTabularSettings(read.reasons)
    return settings


class _Reader:
    """Reads values and collects what is wrong with them."""

    def __init__(self, values: Mapping[str, Scalar]) -> None:
        self.values = values
        self.reasons: list[str] = []

    def text(self, name: str) -> str:
        value = self.values[name]
        if not isinstance(value, str) or not value.strip():
            self.reasons.append(f"{name}: got {value!r}, expected a column's name")
            return ""
        return value.strip()

    def columns(self, name: str) -> tuple[str, ...]:
        value = self.values[name]
        found = tuple(part.strip() for part in str(value).split(",") if part.strip())
        if not found:
            self.reasons.append(f"{name}: got {value!r}, expected columns like 'age, bmi'")
        for column in sorted({c for c in found if found.count(c) > 1}):
            self.reasons.append(f"{name}: column {column!r} is named twice")
        return found

    def one_of(self, name: str, allowed: tuple[str, ...]) -> str:
        value = self.values[name]
        if value not in allowed:
            self.reasons.append(f"{name}: got {value!r}, expected one of {list(allowed)}")
        return str(value)

    def widths(self, name: str) -> tuple[int, ...]:
        value = str(self.values[name])
        parts = [part.strip() for part in value.split(",") if part.strip()]
        if not parts or not all(p.isdigit() and 1 <= int(p) <= MAX_WIDTH for p in parts):
            self.reasons.append(f"{name}: got {value!r}, expected widths like '32' or '32, 16'")
            return ()
        return tuple(int(part) for part in parts)

    def whole(self, name: str, *, low: int, high: int) -> int:
        value = self.values[name]
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            self.reasons.append(f"{name}: got {value!r}, expected a whole number {low} to {high}")
            return low
        return value

    def number(self, name: str, *, low: float, high: float) -> float:
        value = self.values[name]
        fits = isinstance(value, int | float) and not isinstance(value, bool)
        if not fits or not math.isfinite(float(value)) or not low <= float(value) <= high:
            self.reasons.append(f"{name}: got {value!r}, expected a number {low:g} to {high:g}")
            return low
        return float(value)
