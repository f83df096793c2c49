"""A driver whose workers wait in the middle of the stage, and which sends no heartbeat after that.

    held_driver.py FOLDER [the application's arguments]

So it hears that its round was ended from the stream of statuses alone. The file `started` in the folder exists once a
worker waits.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import pytest

sys.path += [str(folder) for folder in (Path(__file__).parent, Path(__file__).parents[1])]

from held_writer import HeldStage

from fluss_tiering.spark import application
from fluss_tiering.spark.round.keepalive import KeepAlive


def main() -> int:
    folder, *arguments = sys.argv[1:]
    HeldStage(Path(folder), pytest.MonkeyPatch())
    application.KeepAlive = partial(KeepAlive, heartbeat_interval_s=3600.0)
    # Its rehearsal writes, too, and is no round's stage.
    application.warm_up = lambda spark: None
    return application.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
