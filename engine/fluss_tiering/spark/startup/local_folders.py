"""The folders in which the driver of Spark keeps its temporary files, and which it makes only once.

Many hosts delete what has lain in `/tmp` for some days. Without these folders each job of a driver that has run for
weeks would fail.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pyspark import SparkContext

from fluss_tiering.spark.submit import make_archive
from fluss_tiering.storage.files import reporting_os_errors

_OWNER_ONLY: Final = 0o700
_OF_BLOCKS: Final = re.compile("[0-9a-f]{2,}")
"""What Spark calls the folders of its block manager, over which it spreads files. Those of tasks have other names: they
come and go."""
_DELETED: Final = (
    "temporary files of Spark were deleted while it runs, and are made again; set SPARK_LOCAL_DIRS and TMPDIR to a "
    "folder that nothing cleans"
)

logger = logging.getLogger(__name__)


class LocalFolders:
    """Makes folders of the driver again that somebody has deleted. Several threads may use it.

    Args:
        context: The Spark context.
        archive: The archive of this package that executors fetch from the driver when they start; None if they have
            the package.
    """

    def __init__(self, context: SparkContext, archive: Path | None = None) -> None:
        self._pyspark, *self._blocks = _roots(context)
        self._archive = archive
        self._seen: set[Path] = set()
        self._lock = threading.Lock()

    def restore(self) -> None:
        """Make again what was there before.

        Spark spreads its files over folders within those of its block manager. It makes each one when it first needs
        it, and then takes for granted that it is there.

        Raises:
            FlussTieringError: STORAGE if the disk refuses.
        """
        with self._lock:
            missing = [each for each in (self._pyspark, *self._blocks, *sorted(self._seen)) if not each.is_dir()]
            for folder in missing:
                with reporting_os_errors("make Spark's temporary folder again:", folder):
                    folder.mkdir(mode=_OWNER_ONLY, parents=True, exist_ok=True)
            if self._archive is not None and not self._archive.is_file():
                missing.append(self._archive)
                with reporting_os_errors("make the package for executors again:", self._archive):
                    self._archive.parent.mkdir(mode=_OWNER_ONLY, parents=True, exist_ok=True)
                    make_archive(self._archive.parent)
            if missing:
                logger.warning("%s: %s", _DELETED, ", ".join(map(str, _tops(missing))))
            for root in self._blocks:
                with reporting_os_errors("list Spark's temporary folder", root):
                    self._seen.update(each for each in root.iterdir() if _OF_BLOCKS.fullmatch(each.name))


def _roots(context: SparkContext) -> tuple[Path, ...]:
    """Return the folder of pyspark, and those of the driver's block manager."""
    # pyspark has no calls for these.
    environment = context._jvm.org.apache.spark.SparkEnv.get()  # noqa: SLF001
    of_blocks = environment.blockManager().diskBlockManager().localDirsString()
    return (Path(context._temp_dir), *(Path(each) for each in of_blocks))  # noqa: SLF001


def _tops(missing: Sequence[Path]) -> list[Path]:
    """Return the folders and files that are in none of the others."""
    return [each for each in missing if not any(parent in missing for parent in each.parents)]
