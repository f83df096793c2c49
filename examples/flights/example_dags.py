"""The DAGs of the folder `dags`, as this example and the tests run them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

EXAMPLE_DAGS: Final = Path(__file__).resolve().parents[2] / "dags"
_SCHEDULE: Final = re.compile(r'^( +)schedule="[^"]+",$', re.MULTILINE)


def copy_without_schedules(folder: Path) -> Path:
    """Copy the example DAGs into a folder, and return it. Nothing but a trigger starts a run of these copies.

    Raises:
        ValueError: An example has no schedule where this function looks for it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(EXAMPLE_DAGS.glob("example_*.py")):
        text, found = _SCHEDULE.subn(r"\1schedule=None,", path.read_text())
        if found != 1:
            raise ValueError(f"{path} has {found} schedules: expected 1 line 'schedule=\"...\",' of the decorator")
        (folder / path.name).write_text(text)
    return folder
