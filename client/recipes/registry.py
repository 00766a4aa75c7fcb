"""The recipes by name; importing this loads neither torch nor flwr nor pandas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fedward.client.recipes.tabular.initial import initial_arrays
from fedward.client.recipes.tabular.settings import DEFAULTS
from fedward.protocol.arrays import Arrays
from fedward.protocol.documents import Scalar


class UnknownRecipe(LookupError):
    """No recipe has this name."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """An app that ships with fedward.

    `prepare` is the query action that a plan runs before round 1 (None for none),
    `initial_arrays(config, seed)` makes the first model from the plan's settings,
    `clientapp` is where the ClientApp lies, and `defaults` are all of its settings.
    """

    name: str
    prepare: str | None
    initial_arrays: Callable[[Mapping[str, Scalar], int], Arrays]
    clientapp: str
    defaults: Mapping[str, Scalar]


_RECIPES = {
    recipe.name: recipe
    for recipe in [
        Recipe(
            name="tabular",
            prepare="statistics",
            initial_arrays=initial_arrays,
            clientapp="fedward.client.recipes.tabular.client_app:app",
            defaults=DEFAULTS,
        )
    ]
}


def recipe(name: str) -> Recipe:
    """Return the recipe of this name.

    Raises:
        UnknownRecipe: lists the names that exist.
    """
    if name not in _RECIPES:
        raise UnknownRecipe(f"got recipe {name!r}, expected one of {names()}")
    return _RECIPES[name]


def names() -> list[str]:
    """Return all names, sorted."""
    return sorted(_RECIPES)
