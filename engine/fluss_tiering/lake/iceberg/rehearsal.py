"""A commit to a lake table in memory. It loads thousands of Java classes, so that the first commit need not wait."""

from __future__ import annotations

import tempfile
import uuid
from typing import Final

from pyspark.sql import SparkSession

from fluss_tiering.lake.iceberg.catalog import IcebergCatalogs
from fluss_tiering.lake.protocol import LakeCommit
from fluss_tiering.model.table import Column, DataType, TableDescriptor, TableInfo, TablePath

_PATH: Final = TablePath("rehearsal", "rehearsal")
_IN_MEMORY: Final = {"catalog-impl": "org.apache.iceberg.inmemory.InMemoryCatalog"}


def rehearse_commit(spark: SparkSession) -> None:
    """Create a table and commit to it, in a second session, so that the given session does not change.

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
