"""Forks Spark's Python workers on the driver's own machine, in the place of `pyspark.daemon`, which does the forking.

Spark's own leaves two things to each task, which together cost a small round more than its rows do:

- A worker loads what it needs after the fork, each worker anew. Here it is loaded before, once.
- Spark puts pyspark's archive and a jar on the workers' path and invalidates the import caches before each task, for
  which CPython reads the directories of both, thousands of entries, again. Here pyspark comes from the folder that the
  archive was made of, whose modules are also compiled.

It runs as `python -m`, before anything else of this package or of pyspark is loaded.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final

_ARCHIVES: Final = (".zip", ".jar")
NEEDED: Final = (
    "fluss_tiering.lake.iceberg.parquet",
    "fluss_tiering.spark.round.pieces",
    "fluss_tiering.storage.fluss.reading.reader",
)
"""Modules with all that a piece of a log needs."""


def main() -> None:
    """Loads what workers need and forks them until Spark ends it."""
    before = list(sys.path)
    sys.path[:] = without_archives(before, os.environ.get("SPARK_HOME", ""))
    for entry in set(before).difference(sys.path):
        sys.path_importer_cache.pop(entry, None)
    for name in NEEDED:
        importlib.import_module(name)
    from pyspark.daemon import manager  # noqa: PLC0415 - from the path as it is now

    # After each task a worker collects garbage: what it was forked with is none, and stays shared.
    gc.collect()
    gc.freeze()
    manager()


def without_archives(path: Sequence[str], spark_home: str) -> list[str]:
    """A path on which the folders that Spark's archives were made of take their place, as far as they are there.

    Args:
        path: as `sys.path`.
        spark_home: of the Spark that runs: a distribution, or where pip has put pyspark.
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
