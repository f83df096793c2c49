"""A driver that is killed or stopped, with all its processes, right before or after a step of its commit.

    faulty_driver.py WHAT WHEN STEP MARKER [the application's arguments]

The steps are wrapped from outside, so the application itself is not changed. With several tables the fault happens when
all of them have reached the step.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from fluss_tiering.client import TieringClient
from fluss_tiering.lake.iceberg.table import IcebergTable
from fluss_tiering.spark import application
from fluss_tiering.spark.options import parse_arguments

STEPS = {
    "prepare": (TieringClient, "prepare_lake_snapshot"),
    "lake": (IcebergTable, "commit"),
    "register": (TieringClient, "commit_lake_snapshot"),
}
FAULTS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


def main() -> int:
    what, when, step, marker, *arguments = sys.argv[1:]
    together = threading.Barrier(len(parse_arguments(arguments).tables))
    owner, name = STEPS[step]
    original = getattr(owner, name)

    def fault() -> None:
        if together.wait() == 0:
            Path(marker).touch()
            os.killpg(0, FAULTS[what])
        together.wait()

    def wrapped(*args, **kwargs):
        if when == "before":
            fault()
        result = original(*args, **kwargs)
        if when == "after":
            fault()
        return result

    setattr(owner, name, wrapped)
    # Its rehearsal commits, too, and is no table's commit.
    application.warm_up = lambda spark: None
    return application.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
