"""The strategies that a plan can name, and the parameters that each takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

from fedward.protocol.documents import Scalar, StrategySpec
from fedward.strategies.base import Strategy
from fedward.strategies.errors import StrategyInvalid
from fedward.strategies.fedavg import FedAvg
from fedward.strategies.fedavgm import MOMENTUM, FedAvgM
from fedward.strategies.fedopt import (
    BETA_1,
    BETA_2,
    BIAS_CORRECTION,
    BIAS_CORRECTIONS,
    LEARNING_RATE,
    TAU,
    FedAdagrad,
    FedAdam,
    FedYogi,
)
from fedward.strategies.fedprox import PROXIMAL_MU, FedProx


@dataclass(frozen=True, slots=True)
class Parameter:
    """What a strategy takes: a number between `minimum` and `maximum`, both allowed.

    Where there are `choices` it is one of those texts. It must be given where `default` is None.
    """

    name: str
    minimum: float = -inf
    maximum: float = inf
    default: float | str | None = None
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Entry:
    parameters: tuple[Parameter, ...]
    make: Callable[[Mapping[str, Any]], Strategy]


_BELOW_ONE = 1 - 2**-53
"""The largest float below 1."""
_LEAST_TAU = 1e-12
"""The division by sqrt(v) + tau needs some: v is 0 where nothing has moved yet."""


def _rate(default: float) -> Parameter:
    return Parameter(LEARNING_RATE, minimum=0.0, default=default)


def _share(name: str, default: float) -> Parameter:
    return Parameter(name, minimum=0.0, maximum=_BELOW_ONE, default=default)


_TAU = Parameter(TAU, minimum=_LEAST_TAU, default=1e-3)
_CORRECTION = Parameter(BIAS_CORRECTION, default="none", choices=BIAS_CORRECTIONS)

_ENTRIES: dict[str, _Entry] = {
    "fedavg": _Entry((), lambda _: FedAvg()),
    "fedprox": _Entry(
        (Parameter(PROXIMAL_MU, minimum=0.0),), lambda p: FedProx(proximal_mu=p[PROXIMAL_MU])
    ),
    "fedavgm": _Entry((_rate(1.0), _share(MOMENTUM, 0.9)), lambda p: FedAvgM(**_as_arguments(p))),
    "fedadam": _Entry(
        (_rate(0.1), _share(BETA_1, 0.9), _share(BETA_2, 0.99), _TAU, _CORRECTION),
        lambda p: FedAdam(**_as_arguments(p)),
    ),
    "fedyogi": _Entry(
        (_rate(0.01), _share(BETA_1, 0.9), _share(BETA_2, 0.99), _TAU),
        lambda p: FedYogi(**_as_arguments(p)),
    ),
    "fedadagrad": _Entry(
        (_rate(0.1), _share(BETA_1, 0.0), _TAU), lambda p: FedAdagrad(**_as_arguments(p))
    ),
}


def names() -> tuple[str, ...]:
    """Return the registered names, sorted."""
    return tuple(sorted(_ENTRIES))


def parameters_of(name: str) -> tuple[Parameter, ...]:
    """Return the parameters that a strategy takes.

    Raises:
        StrategyInvalid: no such strategy.
    """
    return _entry(name).parameters


def build(spec: StrategySpec) -> Strategy:
    """Return the strategy that a plan names.

    Raises:
        StrategyInvalid: the name is unknown, or parameters are unknown, missing or
            of a wrong value; `reasons` has all of them.
    """
    entry = _entry(spec.name)
    reasons = [
        f"strategy {spec.name}: got parameter {name!r}, expected {_known(entry)}"
        for name in sorted(set(spec.parameters) - {p.name for p in entry.parameters})
    ]
    values: dict[str, float | str] = {}
    for parameter in entry.parameters:
        value = spec.parameters.get(parameter.name, parameter.default)
        fault = _fault(value, parameter)
        if fault is None:
            values[parameter.name] = value if isinstance(value, str) else float(value or 0.0)
        else:
            reasons.append(f"strategy {spec.name}: parameter {parameter.name!r}: {fault}")
    if reasons:
        raise StrategyInvalid(reasons)
    return entry.make(values)


def _entry(name: str) -> _Entry:
    if name not in _ENTRIES:
        raise StrategyInvalid([f"strategy: got {name!r}, expected one of {', '.join(names())}"])
    return _ENTRIES[name]


def _known(entry: _Entry) -> str:
    return ", ".join(repr(p.name) for p in entry.parameters) or "none"


def _fault(value: Scalar | None, parameter: Parameter) -> str | None:
    if value is None:
        return "missing"
    if parameter.choices:
        return None if value in parameter.choices else _not_a_choice(value, parameter.choices)
    if isinstance(value, bool | str) or not isfinite(value):
        return f"got {value!r}, expected a finite number"
    if not parameter.minimum <= value <= parameter.maximum:
        return f"got {value}, expected {parameter.minimum} to {parameter.maximum}"
    return None


def _not_a_choice(value: Scalar, choices: tuple[str, ...]) -> str:
    return f"got {value!r}, expected one of {', '.join(choices)}"


def _as_arguments(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace("-", "_"): value for name, value in values.items()}
