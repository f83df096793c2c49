"""A plugin of pytest for `mutate.py`: the tests of a mutant run in the order of their times, the fastest first.

Most mutants are killed by the first test that sees them, and mutmut gives its tests in no order. Mutants of a module
that does not use the JVM are tried without tests that need Spark, if there are others.
"""

from __future__ import annotations

import json
import os
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
    plain = [item for item in items if "spark" not in {marker.name for marker in item.iter_markers()}]
    if plain and not _uses_jvm(os.environ.get("MUTANT_UNDER_TEST", "")):
        items[:] = plain


def _uses_jvm(mutant: str) -> bool:
    """Return whether the module of a mutant uses the JVM; True for the run of all tests, which has no mutant."""
    module, separator, _ = mutant.partition(".x")
    source = Path(module.replace(".", "/") + ".py")
    return not separator or "py4j" in (text := source.read_text()) or "pyspark" in text
