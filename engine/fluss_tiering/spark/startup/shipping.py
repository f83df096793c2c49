"""Ships this package to executors, so that a cluster's workers need not have it installed."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark import SparkContext

from fluss_tiering.spark.startup.local_workers import is_local
from fluss_tiering.spark.submit import PACKAGE, make_archive

logger = logging.getLogger(__name__)


@contextmanager
def shipped(context: SparkContext) -> Iterator[Path | None]:
    """Ship this package to the executors for the time of the block. Those of a local master have it anyway.

    The block gets the archive that executors fetch from this process when they start; None if none was made.

    The workers' Python must have what the package imports: the requirements of `fluss-tiering[spark]`.
    """
    if is_local(context.master):
        yield None
        return
    archive = next((path for path in PACKAGE.parents if path.is_file()), None)
    if archive is not None:
        # The package itself came in an archive, with `--py-files`, which the executors also have.
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="fluss-tiering-") as folder:
        made = make_archive(Path(folder))
        logger.info("shipping %s to the executors of %s", made.name, context.master)
        context.addPyFile(str(made))
        yield made
