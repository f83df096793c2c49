"""A plugin of pytest for `mutate.py`: the tests of a mutant run in the order of their times, the fastest first.

Most mutants are killed by the first test that sees them, and mutmut gives its tests in no order.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

_TIMES = Path("mutmut-stats.json")
"""mutmut's own measurement of every test, in the folder in which it tries mutants."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests, once their times are known."""
    if not _TIMES.exists():
        return
    times = json.loads(_TIMES.read_text())["duration_by_test"]
    items.sort(key=lambda item: times.get(item.nodeid, 0.0))
