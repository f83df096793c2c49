"""Looks for a file of a lake table that is missing or damaged. Spark's own errors often name none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pyarrow import fs
from pyspark.sql import SparkSession

from fluss_tiering.lake.damaged_parquet import MISSING, damage_of, unreadable_file
from fluss_tiering.lake.names import lake_table_name
from fluss_tiering.lake.object_store import filesystem_of, path_of
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import TableInfo
from fluss_tiering.spark.file_jobs import for_each

_KINDS: Final = ("data file", "position delete file", "equality delete file")
"""By the number of a file's content in Iceberg's metadata."""


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A live file of a lake table, as a row of Spark's metadata table `files` describes it."""

    location: str
    content: int
    format: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class DamageFinder:
    """Reads files of one table. It is pickled, and called on executors.

    Attributes:
        io_properties: The lake catalog's properties, for object stores.
    """

    io_properties: Mapping[str, str] = field(repr=False)

    def __call__(self, file: LiveFile) -> FlussTieringError | None:
        """Return CORRUPT_DATA for a file that is missing or damaged; None if it is whole, or if its store fails.

        A Parquet file is read to its end, with the checksums of its pages. Of others, only the size is compared.
        """
        filesystem = filesystem_of(file.location, self.io_properties)
        try:
            found = filesystem.get_file_info(path_of(file.location))
        except OSError:
            return None
        what = None
        if found.type is not fs.FileType.File:
            what = MISSING
        elif found.size != file.size_bytes:
            what = f"is damaged: it has {found.size} bytes instead of {file.size_bytes}"
        elif file.format == "PARQUET":
            what = damage_of(filesystem, file.location)
        form = file.format if file.format == "ORC" else file.format.capitalize()
        return None if what is None else unreadable_file(file.location, what, _KINDS[file.content], form)


def damaged_file(
    spark: SparkSession, table: TableInfo, snapshot_id: int, io_properties: Mapping[str, str]
) -> FlussTieringError | None:
    """Return CORRUPT_DATA for a file of a snapshot that is missing or damaged; None if all files are whole.

    Raises:
        FlussTieringError: UNKNOWN if a task fails for good.
        pyspark.errors.PySparkException: Spark cannot read the metadata of the lake table.
    """
    files = spark.read.option("versionAsOf", snapshot_id).table(f"{lake_table_name(table)}.files")
    rows = files.select("file_path", "content", "file_format", "file_size_in_bytes").collect()
    found = for_each(spark, [LiveFile(*row) for row in rows], DamageFinder(io_properties))
    return next(filter(None, found), None)
