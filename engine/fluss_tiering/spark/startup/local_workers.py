"""Settings for Spark's Python workers on the driver's own machine, which `worker_daemon` forks."""

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
    """Return settings with which `worker_daemon` forks the workers; none if it is not certain that they can load it.

    Args:
        master: Spark's master.
        python: The Python that workers run, a path or a command.
    """
    here = shutil.which(python)
    same = here is not None and Path(here).absolute() == Path(sys.executable).absolute()
    if not (is_local(master) and same and _is_installed()):
        return {}
    return {"spark.python.daemon.module": _DAEMON}


def is_local(master: str) -> bool:
    """Return whether the driver's own process is the executor."""
    return master.startswith("local")


def _is_installed() -> bool:
    """Return whether other processes of this Python have this package. With `--py-files` only the driver has it."""
    if not Path(__file__).is_file():
        return False
    with suppress(importlib.metadata.PackageNotFoundError):
        return bool(importlib.metadata.version(_DISTRIBUTION))
    return False
