"""Spark's Python workers: their settings on the driver's machine, this package on executors, and an early start."""

from __future__ import annotations

import importlib.metadata
import logging
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from pyspark import SparkContext
from pyspark.sql import SparkSession

from fluss_tiering.lake.iceberg.catalog import IcebergCatalogs
from fluss_tiering.lake.protocol import LakeCommit
from fluss_tiering.model.table import Column, DataType, TableDescriptor, TableInfo, TablePath
from fluss_tiering.spark.submit import PACKAGE, make_archive

_DAEMON: Final = "fluss_tiering.spark.worker_daemon"
_DISTRIBUTION: Final = "fluss-tiering"
_PATH: Final = TablePath("rehearsal", "rehearsal")
_IN_MEMORY: Final = {"catalog-impl": "org.apache.iceberg.inmemory.InMemoryCatalog"}
logger = logging.getLogger(__name__)


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


@contextmanager
def shipped(context: SparkContext) -> Iterator[None]:
    """Ship this package to the executors for the time of the block. Those of a local master have it anyway.

    The workers' Python must have what the package imports: the requirements of `fluss-tiering[spark]`.
    """
    # A package that came in an archive itself, with `--py-files`, is one that the executors also have.
    if is_local(context.master) or any(path.is_file() for path in PACKAGE.parents):
        yield
        return
    with tempfile.TemporaryDirectory(prefix="fluss-tiering-") as folder:
        made = make_archive(Path(folder))
        logger.info("shipping %s to the executors of %s", made.name, context.master)
        context.addPyFile(str(made))
        yield


def warm_up(spark: SparkSession) -> None:
    """Start local Python workers and load Iceberg in the JVM at the same time, and return when both are done.

    A failure here is only logged, for those who debug it: the first round meets it again and reports it.
    """
    steps: list[Callable[[], None]] = [lambda: rehearse_commit(spark)]
    if is_local(spark.sparkContext.master):
        steps.append(lambda: _start_workers(spark.sparkContext))
    with ThreadPoolExecutor(len(steps), thread_name_prefix="fluss-tiering-warm-up") as threads:
        for done in [threads.submit(step) for step in steps]:
            if error := done.exception():
                logger.debug("warming up", exc_info=error)


def rehearse_commit(spark: SparkSession) -> None:
    """Create a table in memory and commit to it, which loads thousands of Java classes.

    It does so in a second session, so that the given session does not change.

    Raises:
        FlussTieringError: STORAGE if the commit fails.
    """
    descriptor = TableDescriptor(columns=(Column("id", DataType.parse("BIGINT")),), num_buckets=1)
    with tempfile.TemporaryDirectory(prefix="fluss-tiering-") as folder:
        properties = {**_IN_MEMORY, "name": _PATH.table, "warehouse": f"file://{folder}"}
        table = TableInfo(0, _PATH, 0, descriptor, 0, properties)
        lake = IcebergCatalogs(spark.newSession()).open_table(table)
        lake.unregistered_commit(None)
        lake.size(lake.commit([], LakeCommit(0, 0, str(uuid.uuid4()), "", {})))


def _start_workers(context: SparkContext) -> None:
    """Start a worker for each task that runs at the same time."""
    context.setJobDescription("start the Python workers")
    count = context.defaultParallelism
    context.parallelize(range(count), count).foreachPartition(_nothing)


def _nothing(_: object) -> None:
    pass
