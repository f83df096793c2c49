"""Tables as Fluss describes them: path, bucket, schema, descriptor."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from fluss_tiering.model.data_type import DataType, DataTypeRoot
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

__all__ = [
    "BUCKET_COLUMN",
    "OFFSET_COLUMN",
    "SYSTEM_COLUMNS",
    "TIMESTAMP_COLUMN",
    "BucketInfo",
    "Column",
    "DataType",
    "DataTypeRoot",
    "KvSnapshot",
    "StorageDescription",
    "TableBucket",
    "TableDescriptor",
    "TableInfo",
    "TablePath",
    "WriteKind",
]

# org.apache.fluss.metadata.TablePath: letters, digits, "_" and "-", at most 200 characters, no "__" at the start.
_NAME: Final = re.compile(r"(?!__)[A-Za-z0-9_-]{1,200}")

BUCKET_COLUMN: Final = "__bucket"
OFFSET_COLUMN: Final = "__offset"
TIMESTAMP_COLUMN: Final = "__timestamp"
SYSTEM_COLUMNS: Final = (BUCKET_COLUMN, OFFSET_COLUMN, TIMESTAMP_COLUMN)
"""What the lake table has behind the user's columns, in this order (Fluss's `TableDescriptor`)."""


@dataclass(frozen=True, order=True, slots=True)
class TablePath:
    """`database.table`."""

    database: str
    table: str

    def __post_init__(self) -> None:
        for kind, name in (("database", self.database), ("table", self.table)):
            if not _NAME.fullmatch(name):
                raise FlussTieringError(
                    ErrorCode.INVALID_TABLE,
                    f"{name!r} is not a {kind} name: expected 1 to 200 letters, digits, '_' or '-', no '__' first",
                )

    @classmethod
    def parse(cls, text: str) -> TablePath:
        """`"db.table"` as a path.

        Raises:
            FlussTieringError: INVALID_TABLE when the text is anything else.
        """
        parts = text.split(".")
        if len(parts) != 2:
            raise FlussTieringError(
                ErrorCode.INVALID_TABLE,
                f"{text!r} is not a table path: expected DATABASE.TABLE, as fluss.orders",
            )
        return cls(*parts)

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"


@dataclass(frozen=True, slots=True)
class TableBucket:
    """One bucket of a table (of a partition, where the table is partitioned)."""

    table_id: int
    bucket: int
    partition_id: int | None = None

    def __str__(self) -> str:
        partition = "" if self.partition_id is None else f", partition {self.partition_id}"
        return f"bucket {self.bucket} of table {self.table_id}{partition}"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    name: str
    data_type: DataType
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class TableDescriptor:
    """What a table is created from.

    Attributes:
        primary_key: names of the key columns; empty for a log table. Key columns are never nullable.
        bucket_keys: at most one (Iceberg tables in Fluss allow no more); without one rows go to buckets in turn.
        num_buckets: 1 or more.
        properties: Fluss's table options, for example `table.datalake.freshness`.
        partition_keys: names of the columns by whose values the table is partitioned; empty where it is not. Those of a
            primary-key table are among its primary key.
    """

    columns: tuple[Column, ...]
    primary_key: tuple[str, ...] = ()
    bucket_keys: tuple[str, ...] = ()
    num_buckets: int = 1
    properties: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None
    partition_keys: tuple[str, ...] = ()

    @property
    def has_primary_key(self) -> bool:
        """Whether this is a primary-key table (else a log table)."""
        return bool(self.primary_key)

    @property
    def physical_primary_key(self) -> tuple[str, ...]:
        """The key columns that tell the rows of one partition apart."""
        return tuple(name for name in self.primary_key if name not in self.partition_keys)

    def column(self, name: str) -> Column:
        """The column of that name; KeyError when there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table that exists. `created_time` in ms since the epoch.

    Attributes:
        lake_catalog_properties: Iceberg catalog properties (type, uri, warehouse, …) of the lake it is tiered into.
    """

    table_id: int
    path: TablePath
    schema_id: int
    descriptor: TableDescriptor
    created_time: int
    lake_catalog_properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_primary_key(self) -> bool:
        """Whether this is a primary-key table (else a log table)."""
        return self.descriptor.has_primary_key


@dataclass(frozen=True, slots=True)
class KvSnapshot:
    """A point-in-time snapshot of one bucket of a primary-key table.

    Attributes:
        log_offset: the log from here on is not in the snapshot.
        path: folder of its files, relative to the storage's data folder.
        split_keys: keys at which it may be cut into ranges of like size, ascending.
    """

    bucket: TableBucket
    snapshot_id: int
    log_offset: int
    row_count: int
    size_bytes: int
    path: str
    split_keys: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class BucketInfo:
    """What a reader may plan with: offsets are half-open, [log_start_offset, log_end_offset).

    Attributes:
        partition_values: of the bucket's partition, one for each of the table's partition keys.
    """

    bucket: TableBucket
    log_start_offset: int
    log_end_offset: int
    log_size_bytes: int
    latest_kv_snapshot: KvSnapshot | None = None
    partition_values: tuple[str, ...] = ()


class WriteKind(StrEnum):
    """What rows mean: APPEND to a log table; UPSERT or DELETE by key in a primary-key table."""

    APPEND = "append"
    UPSERT = "upsert"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class StorageDescription:
    """Which storage a server has, so that a reader can tell how to get at the data without the server.

    Attributes:
        kind: "embedded" or "fluss".
        data_dir: of the embedded storage, which a reader on the same machine opens.
        data_dir_id: that the folder bears.
        bootstrap_servers: of a Fluss cluster, HOST:PORT with commas between them.
    """

    kind: str
    data_dir: str
    data_dir_id: str
    server_version: str
    bootstrap_servers: str = ""


def partition_name(values: Sequence[str]) -> str:
    """Return the name that Fluss gives the partition of these values (Fluss's `ResolvedPartitionSpec`)."""
    return "$".join(values)
