"""Ships this package to executors, so that a cluster's workers need not have it installed."""

from __future__ import annotations

import logging
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark import SparkContext

from fluss_tiering.spark.startup.local_workers import is_local

_PACKAGE: Final = Path(__file__).resolve().parents[2]
_SUFFIXES: Final = frozenset({".py", ".typed"})

logger = logging.getLogger(__name__)


@contextmanager
def shipped(context: SparkContext) -> Iterator[None]:
    """Ship this package to the executors for the time of the block. Those of a local master have it anyway.

    The workers' Python must have what the package imports: the requirements of `fluss-tiering[spark]`.
    """
    if is_local(context.master):
        yield
        return
    archive = next((path for path in _PACKAGE.parents if path.is_file()), None)
    if archive is not None:
        # The package itself came in an archive, with `--py-files`, which the executors also have.
        yield
        return
    with tempfile.TemporaryDirectory(prefix="fluss-tiering-") as folder:
        made = make_archive(Path(folder))
        logger.info("shipping %s to the executors of %s", made.name, context.master)
        context.addPyFile(str(made))
        yield


def make_archive(folder: Path) -> Path:
    """Make an archive of this package for `--py-files` in the folder, and return its path."""
    path = folder / "fluss_tiering.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(_PACKAGE.rglob("*")):
            if file.suffix in _SUFFIXES:
                archive.write(file, file.relative_to(_PACKAGE.parent))
        source = _PACKAGE.with_name("pyspark_fluss.py")
        if source.is_file():
            archive.write(source, source.name)
    return path
