"""Writes files again whose columns have other physical types than Iceberg's spec says, with the same rows."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

import pyarrow as pa

from fluss_tiering.lake.damaged_parquet import naming_damage, open_parquet, unreadable_file
from fluss_tiering.lake.iceberg.metrics.collector import columns_with_nan, leaves_of
from fluss_tiering.lake.iceberg.parquet import OpenFile, ParquetFileWriter
from fluss_tiering.lake.object_store import filesystem_of, path_of
from fluss_tiering.lake.protocol import FileMetrics


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file with the same rows as another one.

    Attributes:
        replaced: The location of the other file.
        location: The location of the file.
        size_bytes: The size of the file.
        metrics: Its metrics.
    """

    replaced: str
    location: str
    size_bytes: int
    metrics: FileMetrics = field(repr=False)


@dataclass(frozen=True, slots=True)
class FileRewriter:
    """Writes files again. It is pickled, and called on executors.

    Attributes:
        settings: The settings of the table's files.
    """

    settings: ParquetFileWriter

    def __call__(self, location: str) -> NewFile:
        """Write a file again, next to the old one.

        Raises:
            FlussTieringError: CORRUPT_DATA if the file is missing or damaged.
            OSError: If its store fails.
        """
        filesystem = filesystem_of(location, self.settings.io_properties)
        name = f"{location.removesuffix('.parquet')}-{uuid.uuid4()}.parquet"
        with (
            naming_damage(filesystem, location, lambda what: unreadable_file(location, what, "file")),
            filesystem.open_input_file(path_of(location)) as source,
        ):
            parquet = open_parquet(source)
            groups = range(parquet.metadata.num_row_groups)
            with_nan: set[str] = set()
            if any(pa.types.is_floating(leaf.kind) for leaf in leaves_of(parquet.schema_arrow)):
                with_nan.update(*(columns_with_nan(parquet.read_row_group(group)) for group in groups))
            file = OpenFile(name, parquet.schema_arrow, self.settings, filesystem, with_nan=with_nan)
            try:
                for group in groups:
                    file.write(_plain(parquet.read_row_group(group)))
                size, metrics = file.close()
            except BaseException:
                file.abandon()
                raise
        return NewFile(location, name, size, metrics)


def _plain(rows: pa.Table) -> pa.Table:
    return rows.replace_schema_metadata(None)
