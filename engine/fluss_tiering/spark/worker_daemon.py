"""Forks Spark's Python workers on the driver's own machine. It runs instead of `pyspark.daemon`, and calls it.

With Spark's own daemon two things are done in each task. In a small round they cost more than its rows:

- Each worker loads its modules after the fork. Here they are loaded once, before the fork.
- Spark puts pyspark's archive and a jar on the workers' path and invalidates the import caches before each task.
  CPython then reads the directories of both again, with thousands of entries. Here pyspark is loaded from the folder
  from which the archive was made, whose modules are also compiled.

It runs with `python -m`, before anything else of this package or of pyspark is loaded.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Collection, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final

_ARCHIVES: Final = (".zip", ".jar")
NEEDED: Final = (
    "fluss_tiering.lake.iceberg.parquet",
    "fluss_tiering.spark.round.pieces",
    "fluss_tiering.storage.fluss.reading.reader",
)
"""The modules that load everything that a piece of a log needs."""


def main() -> None:
    """Load what workers need, and fork workers until Spark ends this process."""
    # Under spark-submit the driver's secrets may be in Spark's environment. Executors get what they need with the job.
    for name in ("FLUSS_TIERING_TOKEN", "FLUSS_TIERING_FLUSS_PASSWORD"):
        os.environ.pop(name, None)
    before = list(sys.path)
    sys.path[:] = without_archives(before, os.environ.get("SPARK_HOME", ""))
    forget_archives(set(before).difference(sys.path))
    for name in NEEDED:
        importlib.import_module(name)
    from pyspark.daemon import manager  # noqa: PLC0415 - from the path as it is now

    # A worker collects garbage after each task. It must not touch what it was forked with, so that memory stays shared.
    gc.collect()
    gc.freeze()
    manager()


def forget_archives(archives: Collection[str]) -> None:
    """Let Python forget the importers of archives that left the path, and the packages that it found in them.

    The standard library's `copy` looks for a package `org`, as Jython has one, and takes the folder in Spark's jar for
    it. Such a package has an importer of its own.
    """
    gone = tuple(f"{archive}{os.sep}" for archive in archives)

    def is_gone(entry: str) -> bool:
        return f"{entry}{os.sep}".startswith(gone)

    for name, module in list(sys.modules.items()):
        folders = list(getattr(module, "__path__", ()))
        if folders and all(map(is_gone, folders)):
            del sys.modules[name]
    for entry in filter(is_gone, list(sys.path_importer_cache)):
        del sys.path_importer_cache[entry]


def without_archives(path: Sequence[str], spark_home: str) -> list[str]:
    """Return the path with folders instead of Spark's archives, if the folders exist.

    Args:
        path: The search path for modules, like `sys.path`.
        spark_home: The home folder of Spark: a distribution, or the folder in which pip has installed pyspark.
    """
    home = Path(spark_home).absolute()
    folders = (home / "python", home.parent) if spark_home else ()
    folder = next((each for each in folders if (each / "pyspark" / "__init__.py").is_file()), None)
    if folder is None:
        return list(path)
    rest = [entry for entry in path if not entry.endswith(_ARCHIVES)]
    found = rest if str(folder) in rest else [str(folder), *rest]
    if PathFinder.find_spec("py4j", found) is None:
        found += [entry for entry in path if Path(entry).name.startswith("py4j")]
    return found


if __name__ == "__main__":
    main()
