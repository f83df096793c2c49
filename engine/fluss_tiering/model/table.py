"""Tables as Fluss describes them: paths, buckets, columns and descriptors, and the storage that has them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from fluss_tiering.model.data_type import DataType, DataTypeRoot
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table_options import LAKE_DATABASE_NAME, LAKE_TABLE_NAME

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
    "TableSchema",
    "WriteKind",
]

# org.apache.fluss.metadata.TablePath: letters, digits, "_" and "-", at most 200 characters, no "__" at the start.
_NAME: Final = re.compile(r"(?!__)[A-Za-z0-9_-]{1,200}")

BUCKET_COLUMN: Final = "__bucket"
OFFSET_COLUMN: Final = "__offset"
TIMESTAMP_COLUMN: Final = "__timestamp"
SYSTEM_COLUMNS: Final = (BUCKET_COLUMN, OFFSET_COLUMN, TIMESTAMP_COLUMN)
"""The columns that a lake table has after the user's columns, in this order (as in Fluss's `TableDescriptor`)."""


@dataclass(frozen=True, order=True, slots=True)
class TablePath:
    """The path of a table, written `database.table`.

    Attributes:
        table: The name of the table in it.
    """

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
        """Parse a path such as `fluss.orders`.

        Raises:
            FlussTieringError: INVALID_TABLE if the text is anything else.
        """
        parts = text.split(".")
        if len(parts) != 2:
            raise FlussTieringError(
                ErrorCode.INVALID_TABLE,
                f"{text!r} is not a table path: expected DATABASE.TABLE, for example fluss.orders",
            )
        return cls(*parts)

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"


@dataclass(frozen=True, slots=True)
class TableBucket:
    """One bucket of a table, or of a partition if the table is partitioned.

    Attributes:
        table_id: The table's id.
        bucket: The number of the bucket, from 0 on.
        partition_id: The partition's id; None if the table is not partitioned.
    """

    table_id: int
    bucket: int
    partition_id: int | None = None

    def __str__(self) -> str:
        partition = "" if self.partition_id is None else f", partition {self.partition_id}"
        return f"bucket {self.bucket} of table {self.table_id}{partition}"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        data_type: The type of its values.
        comment: A comment for people; None if there is none.
    """

    name: str
    data_type: DataType
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class TableDescriptor:
    """The definition of a table, from which it is created.

    Attributes:
        columns: The columns in order.
        primary_key: The names of the key columns; empty for a log table. Key columns are never nullable.
        bucket_keys: The names of the columns that choose a row's bucket. A Fluss cluster and a lake table in the legacy
            layout take at most one. Without one, rows go to the buckets in turn.
        num_buckets: The number of buckets, 1 or more.
        properties: The table's options under Fluss's keys, for example `table.datalake.freshness`.
        comment: A comment for people; None if there is none.
        partition_keys: The names of the columns by whose values the table is partitioned; empty if it is not
            partitioned. A primary-key table has them in its primary key.
        auto_increment_columns: The names of the columns that a Fluss cluster numbers itself. Writers leave them out.
    """

    columns: tuple[Column, ...]
    primary_key: tuple[str, ...] = ()
    bucket_keys: tuple[str, ...] = ()
    num_buckets: int = 1
    properties: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None
    partition_keys: tuple[str, ...] = ()
    auto_increment_columns: tuple[str, ...] = ()

    @property
    def has_primary_key(self) -> bool:
        """Whether this is a primary-key table (else a log table)."""
        return bool(self.primary_key)

    @property
    def physical_primary_key(self) -> tuple[str, ...]:
        """The names of the key columns without the partition keys: they identify a row within its partition."""
        return tuple(name for name in self.primary_key if name not in self.partition_keys)

    @property
    def written_columns(self) -> tuple[Column, ...]:
        """The columns that written rows have: all but those that the cluster numbers."""
        return tuple(column for column in self.columns if column.name not in self.auto_increment_columns)

    def column(self, name: str) -> Column:
        """Return the column with this name.

        Raises:
            KeyError: There is no such column.
        """
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)


@dataclass(frozen=True, slots=True)
class TableSchema:
    """The columns that a table has, or had before they were altered.

    Attributes:
        schema_id: The id with which rows are stored that have these columns.
        columns: The columns in order.
        column_ids: The id of each column. It stays when the column is renamed or widened, and no later one gets it.
    """

    schema_id: int
    columns: tuple[Column, ...]
    column_ids: tuple[int, ...]

    @property
    def ids(self) -> dict[str, int]:
        """The id of each column by its name."""
        return {column.name: number for column, number in zip(self.columns, self.column_ids, strict=True)}


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table that exists.

    Attributes:
        table_id: The table's id.
        path: The table's path.
        schema_id: The id of the present schema.
        descriptor: The table's definition.
        created_time: When the table was created, in milliseconds since the epoch.
        lake_catalog_properties: The properties of the Iceberg catalog (type, uri, warehouse, …) into which the table is
            tiered.
        bucket_count_epoch: How often the number of buckets was changed. If it ever was, a partition may have another
            number than the descriptor says.
        schemas: All schemas, from the first to the present one. Empty if the columns were never altered, and for a
            table of a cluster, which keeps its schemas itself.
    """

    table_id: int
    path: TablePath
    schema_id: int
    descriptor: TableDescriptor
    created_time: int
    lake_catalog_properties: Mapping[str, str] = field(default_factory=dict)
    bucket_count_epoch: int = 0
    schemas: tuple[TableSchema, ...] = ()

    @property
    def present_schema(self) -> TableSchema:
        """The present schema. The columns of a table that was never altered have their positions as ids."""
        columns = self.descriptor.columns
        return self.schemas[-1] if self.schemas else TableSchema(self.schema_id, columns, tuple(range(len(columns))))

    def as_of(self, schema_id: int) -> TableInfo:
        """Return the table as it was under one of its schemas, with its present options.

        Raises:
            KeyError: It has no such schema.
        """
        if schema_id == self.schema_id:
            return self
        until = tuple(schema for schema in self.schemas if schema.schema_id <= schema_id)
        if not until or until[-1].schema_id != schema_id:
            raise KeyError(schema_id)
        descriptor = replace(self.descriptor, columns=until[-1].columns)
        return replace(self, schema_id=schema_id, descriptor=descriptor, schemas=until)

    @property
    def lake_path(self) -> TablePath:
        """The path of the lake table in its catalog: that of the table, unless options name another one.

        Raises:
            FlussTieringError: INVALID_TABLE if one of the options is no name.
        """
        return lake_path_of(self.path, self.descriptor.properties)

    @property
    def has_primary_key(self) -> bool:
        """Whether this is a primary-key table (else a log table)."""
        return self.descriptor.has_primary_key


@dataclass(frozen=True, slots=True)
class KvSnapshot:
    """A KV snapshot: the rows of one bucket of a primary-key table at one point in time.

    Attributes:
        snapshot_id: The id of the snapshot within its bucket.
        log_offset: The offset up to which the bucket's log is in the snapshot (exclusive).
        row_count: The number of rows.
        size_bytes: The size of the snapshot's files in bytes.
        path: The folder of the snapshot's files, relative to the storage's data folder.
        split_keys: The keys at which the snapshot may be cut into ranges of similar size, in ascending order.
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
    """What can be read of a bucket.

    Attributes:
        log_start_offset: The offset of the first record in the log.
        log_end_offset: The offset after the last record in the log.
        log_size_bytes: The size of the log in bytes.
        latest_kv_snapshot: The newest KV snapshot; None for a log table, and as long as there is none.
        partition_values: The values of the bucket's partition, one for each of the table's partition keys.
    """

    bucket: TableBucket
    log_start_offset: int
    log_end_offset: int
    log_size_bytes: int
    latest_kv_snapshot: KvSnapshot | None = None
    partition_values: tuple[str, ...] = ()


class WriteKind(StrEnum):
    """What a write does with its rows: APPEND to a log table; UPSERT or DELETE by key in a primary-key table."""

    APPEND = "append"
    UPSERT = "upsert"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class StorageDescription:
    """The storage of a server. With it a reader can read the data without the server.

    Attributes:
        kind: The kind of storage, "embedded" or "fluss".
        data_dir: The data folder of the embedded storage, which a reader on the same machine opens; else empty.
        data_dir_id: The id that is written in the data folder, or the id of the Fluss cluster.
        server_version: The version of the server.
        bootstrap_servers: The addresses of a Fluss cluster, HOST:PORT separated by commas; else empty.
    """

    kind: str
    data_dir: str
    data_dir_id: str
    server_version: str
    bootstrap_servers: str = ""


def lake_path_of(path: TablePath, properties: Mapping[str, str]) -> TablePath:
    """Return the path of a table's lake table by the rule of Fluss's `LakeTableUtil`.

    Raises:
        FlussTieringError: INVALID_TABLE if one of the options is no name.
    """
    database = properties.get(LAKE_DATABASE_NAME.key, path.database)
    return TablePath(database, properties.get(LAKE_TABLE_NAME.key, path.table))


def partition_name(values: Sequence[str]) -> str:
    """Return the name that Fluss gives the partition of these values (Fluss's `ResolvedPartitionSpec`)."""
    return "$".join(values)
