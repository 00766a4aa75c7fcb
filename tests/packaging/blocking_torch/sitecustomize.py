"""Put this folder on PYTHONPATH and Python behaves as if these packages were not installed."""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

BLOCKED = frozenset({"torch", "ray", "pandas"})


class Blocker:
    """First of the import system's finders; refuses what is blocked and finds nothing else."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"{name} is blocked here", name=name)
        return None


sys.meta_path.insert(0, Blocker())
