"""Spark's Python workers on the driver's own machine, forked with all that they need: see `worker_daemon`."""

from __future__ import annotations

import importlib.metadata
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

_DAEMON: Final = "fluss_tiering.spark.worker_daemon"
_DISTRIBUTION: Final = "fluss-tiering"


def local_workers_conf(master: str, python: str) -> dict[str, str]:
    """Settings by which workers are forked by `worker_daemon`, where it is certain that they can load it; else none.

    Args:
        master: Spark's.
        python: what workers run, a path or a command.
    """
    here = shutil.which(python)
    same = here is not None and Path(here).absolute() == Path(sys.executable).absolute()
    if not (is_local(master) and same and _is_installed()):
        return {}
    return {"spark.python.daemon.module": _DAEMON}


def is_local(master: str) -> bool:
    """Whether executors are the driver's own process."""
    return master.startswith("local")


def _is_installed() -> bool:
    """Whether another process of this Python has this package, too: not where the driver has it by `--py-files`."""
    if not Path(__file__).is_file():
        return False
    with suppress(importlib.metadata.PackageNotFoundError):
        return bool(importlib.metadata.version(_DISTRIBUTION))
    return False
