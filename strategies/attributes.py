"""An object's attributes as named arrays, and back, so that its state can be stored.

`attribute/kind` or `attribute/kind/key` is an array's name. Carried are numbers, arrays of
numbers, and lists and mappings (names to arrays) of those; whatever else an object remembers is
left out, and whoever relies on this checks that nothing is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

_NUMERIC = "fiub"
"""numpy's kinds of dtypes that a file of arrays can hold."""


class NamedArrays(dict[str, NDArray[Any]]):
    """Arrays that the object keeps in a record of its own instead of a dict."""


def flatten(attributes: Mapping[str, object]) -> dict[str, NDArray[Any]]:
    """Return what can be carried of `attributes`; arrays are shared, not copied."""
    flat: dict[str, NDArray[Any]] = {}
    for name, value in attributes.items():
        flat |= {f"{name}/{place}": array for place, array in _places(value).items()}
    return flat


def names_in(arrays: Mapping[str, NDArray[Any]]) -> set[str]:
    """Return the names of the attributes that are carried."""
    return {place.partition("/")[0] for place in arrays}


def changed(
    now: Mapping[str, NDArray[Any]], before: Mapping[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    """Return the attributes of `now` that are not as in `before`, each of them whole."""
    differing = names_in(
        {
            place: array
            for place, array in {**before, **now}.items()
            if place not in now or place not in before or not _same(array, before[place])
        }
    )
    return {place: now[place] for place in now if place.partition("/")[0] in differing}


def restore(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Return the attributes that `flatten` made `arrays` of; their arrays are writable copies."""
    attributes: dict[str, Any] = {}
    for place, array in arrays.items():
        name, kind, *key = place.split("/", 2)
        if kind == "number":
            attributes[name] = array.item()
        elif kind == "array":
            attributes[name] = array.copy()
        elif kind == "numbers":
            attributes[name] = array.tolist()
        elif kind == "list":
            attributes.setdefault(name, []).append(array.copy())
        else:
            empty = NamedArrays() if kind == "record" else {}
            attributes.setdefault(name, empty)["".join(key)] = array.copy()
    return attributes


def _places(value: object) -> dict[str, NDArray[Any]]:
    if _is_number(value):
        return {"number": np.asarray(value)}
    if _is_array(value):
        return {"array": np.asarray(value)}
    if isinstance(value, list) and value:
        if all(type(item) is type(value[0]) and _is_number(item) for item in value):
            return {"numbers": np.asarray(value)}
        if all(_is_array(item) for item in value):
            return {f"list/{index}": np.asarray(item) for index, item in enumerate(value)}
    if isinstance(value, dict) and all(
        isinstance(key, str) and _is_array(item) for key, item in value.items()
    ):
        kind = "record" if isinstance(value, NamedArrays) else "dict"
        return {f"{kind}/{key}": np.asarray(item) for key, item in value.items()}
    return {}


def _same(one: NDArray[Any], other: NDArray[Any]) -> bool:
    return one.dtype == other.dtype and np.array_equal(one, other)


def _is_number(value: object) -> bool:
    return isinstance(value, bool | int | float) and np.asarray(value).dtype.kind in _NUMERIC


def _is_array(value: object) -> bool:
    """Return whether this is an array, or a scalar that numpy made of a 0-d one."""
    return isinstance(value, np.ndarray | np.generic) and value.dtype.kind in _NUMERIC
