"""The strategies that a plan can name, and the parameters that each takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf, isfinite

from fedward.protocol.documents import Scalar, StrategySpec
from fedward.strategies.base import Strategy
from fedward.strategies.errors import StrategyInvalid
from fedward.strategies.fedavg import FedAvg
from fedward.strategies.fedprox import PROXIMAL_MU, FedProx


@dataclass(frozen=True, slots=True)
class Parameter:
    """A number that a strategy takes, between `minimum` and `maximum`, both allowed.

    It must be given where `default` is None.
    """

    name: str
    minimum: float = -inf
    maximum: float = inf
    default: float | None = None


@dataclass(frozen=True, slots=True)
class _Entry:
    parameters: tuple[Parameter, ...]
    make: Callable[[Mapping[str, float]], Strategy]


_ENTRIES: dict[str, _Entry] = {
    "fedavg": _Entry((), lambda _: FedAvg()),
    "fedprox": _Entry(
        (Parameter(PROXIMAL_MU, minimum=0.0),), lambda p: FedProx(proximal_mu=p[PROXIMAL_MU])
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
        StrategyInvalid: the name is unknown, or parameters are unknown, missing, not numbers
            or out of range; `reasons` has all of them.
    """
    entry = _entry(spec.name)
    reasons = [
        f"strategy {spec.name}: got parameter {name!r}, expected {_known(entry)}"
        for name in sorted(set(spec.parameters) - {p.name for p in entry.parameters})
    ]
    values: dict[str, float] = {}
    for parameter in entry.parameters:
        value = spec.parameters.get(parameter.name, parameter.default)
        fault = _fault(value, parameter)
        if fault is None:
            values[parameter.name] = float(value or 0.0)
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
    if isinstance(value, bool | str) or not isfinite(value):
        return f"got {value!r}, expected a finite number"
    if not parameter.minimum <= value <= parameter.maximum:
        return f"got {value}, expected {parameter.minimum} to {parameter.maximum}"
    return None
