from collections.abc import Iterator
from pathlib import Path

import pytest

from .federation import Federation


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Federation]:
    made = Federation(tmp_path)
    yield made
    made.close()
