"""The rules for tables of the embedded storage: Fluss's `TableDescriptorValidation`, limited to what Iceberg holds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NoReturn

from fluss_tiering.formats.bucketing import check_bucket_key_type
from fluss_tiering.formats.grouping import NAMING
from fluss_tiering.model.data_type import NESTED, DataType
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import SYSTEM_COLUMNS, Column, DataTypeRoot, TableDescriptor, TableInfo
from fluss_tiering.model.table_options import (
    FIXED,
    LAKE_LAYOUT,
    LAKE_TABLE_PREFIX,
    MERGE_ENGINE,
    OWN_PREFIX,
    check_option_key,
    has_clean_layout,
)
from fluss_tiering.storage.lake_rules import check_key_precision, check_lake_rules
from fluss_tiering.storage.writes import compression_of

_MAX_BUCKETS: Final = 1024
MAX_PARTITIONS: Final = 1000
"""The number of partitions that a table may have (Fluss's `max.partition.num`)."""
_PARTITION_VALUE: Final = re.compile(r"(?!__)[A-Za-z0-9_-]{1,200}")
"""A partition is named by its values, so the rules for table names apply to them (Fluss's `PartitionUtils`)."""
_CHANGELOG_COLUMNS: Final = ("_change_type", "_log_offset", "_commit_timestamp")
"""Names that Fluss reserves for reading a changelog as a table."""
_ICEBERG_COLUMNS: Final = (
    "_file",
    "_pos",
    "_deleted",
    "_spec_id",
    "_partition",
    "_row_id",
    "_last_updated_sequence_number",
    "_change_ordinal",
    "_commit_snapshot_id",
)
"""Names that Iceberg has for what it knows of a row. Spark reads no lake table that has a column with one of them, in
whichever case."""
_RESERVED: Final = (*SYSTEM_COLUMNS, *_CHANGELOG_COLUMNS, *_ICEBERG_COLUMNS)
_NO_KEY: Final = NESTED | {DataTypeRoot.FLOAT, DataTypeRoot.DOUBLE}
"""Types that Iceberg does not allow in identifier fields (its specification, "Identifier Field IDs")."""
_ALTERABLE_PREFIX: Final = "table.datalake."


def validate(descriptor: TableDescriptor) -> TableDescriptor:
    """Check a new table and return its descriptor.

    The primary key without the partition key becomes the bucket key if none is named, as in Fluss. The layout of the
    lake table becomes an option of the table, so that another default of a later version does not change it.

    Raises:
        FlussTieringError: INVALID_TABLE if a rule is broken.
    """
    descriptor = replace(descriptor, properties={LAKE_LAYOUT.key: LAKE_LAYOUT.default, **descriptor.properties})
    _check_columns(descriptor.columns)
    if descriptor.auto_increment_columns:
        _refuse(
            f"the columns {', '.join(descriptor.auto_increment_columns)} are to be numbered: expected none, since only "
            "a Fluss cluster numbers rows"
        )
    _check_properties(descriptor)
    if not 1 <= descriptor.num_buckets <= _MAX_BUCKETS:
        _refuse(f"{descriptor.num_buckets} buckets: expected 1 to {_MAX_BUCKETS}")
    _check_primary_key(descriptor)
    _check_partition_keys(descriptor)
    resolved = replace(descriptor, bucket_keys=descriptor.bucket_keys or descriptor.physical_primary_key)
    _check_bucket_keys(resolved)
    check_lake_rules(resolved)
    return resolved


def check_altered(descriptor: TableDescriptor) -> None:
    """Check the columns of a table that were altered.

    Raises:
        FlussTieringError: INVALID_TABLE if a rule for the columns of a table is broken.
    """
    _check_columns(descriptor.columns)
    check_lake_rules(descriptor)


def altered(descriptor: TableDescriptor, properties: Mapping[str, str]) -> TableDescriptor:
    """Return the descriptor with these options instead of its own.

    An option cannot change if it decided how rows were stored or how the lake table was made (Fluss's
    `FlussConfigUtils`, limited to what is implemented).

    Raises:
        FlussTieringError: INVALID_TABLE if an option cannot change or has a wrong value.
    """
    before = descriptor.properties
    if LAKE_LAYOUT.key in before:
        properties = {LAKE_LAYOUT.key: LAKE_LAYOUT.default, **properties}
    for key in sorted(before.keys() | properties.keys()):
        if before.get(key) == properties.get(key):
            continue
        # An option that the table has may be taken away, whatever it is.
        if key in properties:
            check_option_key(key)
        if key.startswith(_ALTERABLE_PREFIX):
            continue
        if key.startswith(LAKE_TABLE_PREFIX):
            _refuse(
                f"{key} cannot be altered here, since a table's first round makes the lake table with the options of "
                f"the table: expected {_ALTERABLE_PREFIX}… or an option of your own; if there is a lake table, set its "
                "property in the lake; if there is none yet, drop the table and create it with the option"
            )
        if key.startswith(OWN_PREFIX):
            _refuse(
                f"{key} cannot be altered, since the table's rows are stored by it: expected {_ALTERABLE_PREFIX}… "
                "or an option of your own; make another table with it"
            )
    _check_fixed(properties)
    changed = replace(descriptor, properties=dict(properties))
    check_lake_rules(changed)
    return changed


def check_partition_values(info: TableInfo, values: Sequence[str]) -> None:
    """Check that a partition may have these values.

    Raises:
        FlussTieringError: INVALID_ROWS if no partition can be named by one of the values.
    """
    for key, value in zip(info.descriptor.partition_keys, values, strict=True):
        if not _PARTITION_VALUE.fullmatch(value):
            raise FlussTieringError(
                ErrorCode.INVALID_ROWS,
                f"the partition key {key!r} of table {info.path} is {value!r} in a row: expected 1 to 200 letters, "
                "digits, '_' or '-', no '__' first, since a partition is named by it",
            )


def _check_columns(columns: tuple[Column, ...]) -> None:
    if not columns:
        _refuse("the table has no columns: expected at least one")
    names = [column.name for column in columns]
    if "" in names:
        _refuse("a column has no name: expected every column to have one")
    twice = _first_repeated(names)
    if twice is not None:
        _refuse(f"two columns are named {twice!r}: expected every column to have a name of its own")
    nested = {name for column in columns for name in _nested_names(column.name, column.data_type)}
    for name in names:
        if name in nested:
            # Iceberg finds fields by such names.
            _refuse(f"the column name {name!r} is that of a field in another column: expected another name")
        # Spark ignores the case of column names.
        if name.lower() in _RESERVED:
            _refuse(f"the column name {name!r} is reserved: expected none of {', '.join(_RESERVED)}; rename the column")


def _nested_names(name: str, data_type: DataType) -> Iterator[str]:
    for field in data_type.fields:
        yield f"{name}.{field.name}"
        yield from _nested_names(f"{name}.{field.name}", field.data_type)


def _check_properties(descriptor: TableDescriptor) -> None:
    compression_of(descriptor)
    _check_fixed(descriptor.properties)
    if MERGE_ENGINE in descriptor.properties:
        _refuse(f"{MERGE_ENGINE} is set: expected it to be absent, since the last row of a key is kept here")
    for key in descriptor.properties:
        check_option_key(key)


def _check_fixed(properties: Mapping[str, str]) -> None:
    for option in FIXED:
        value = properties.get(option.key, option.default)
        if value.upper() != option.default:
            _refuse(
                f"{option.key} is {value!r}: expected {option.default}, "
                "the only value that the embedded storage implements"
            )


def _check_primary_key(descriptor: TableDescriptor) -> None:
    _check_named("primary key", descriptor.primary_key, descriptor)
    for name in descriptor.primary_key:
        data_type = descriptor.column(name).data_type
        if data_type.nullable:
            _refuse(f"the primary key column {name!r} is nullable: expected it to be declared {data_type} NOT NULL")
        if data_type.root in _NO_KEY:
            _refuse(f"the primary key column {name!r} is {data_type}: expected a type that Iceberg takes in a key")
        check_key_precision("primary key", name, data_type)


def _check_partition_keys(descriptor: TableDescriptor) -> None:
    _check_named("partition key", descriptor.partition_keys, descriptor)
    for name in descriptor.partition_keys:
        data_type = descriptor.column(name).data_type
        is_text = data_type.root in {DataTypeRoot.CHAR, DataTypeRoot.STRING}
        if not is_text and not (data_type.root in NAMING and has_clean_layout(descriptor.properties)):
            _refuse(
                f"the partition key {name!r} is {data_type}: expected STRING, or one of {', '.join(sorted(NAMING))} "
                f"without the option {LAKE_LAYOUT.key}=legacy"
            )
        if descriptor.has_primary_key and name not in descriptor.primary_key:
            _refuse(
                f"the partition key {name!r} is not part of the primary key: "
                f"expected one of {', '.join(descriptor.primary_key)}, so that a key is in one partition"
            )
    if descriptor.has_primary_key and not descriptor.physical_primary_key:
        _refuse(
            f"the primary key ({', '.join(descriptor.primary_key)}) has partition keys only: "
            "expected another column in it, which tells the rows of a partition apart"
        )


def _check_bucket_keys(descriptor: TableDescriptor) -> None:
    bucket_keys = descriptor.bucket_keys
    _check_named("bucket key", bucket_keys, descriptor)
    for name in bucket_keys:
        if name in descriptor.partition_keys:
            _refuse(
                f"the bucket key {name!r} is a partition key: expected another column, "
                "since a partition has one value of it"
            )
        if descriptor.has_primary_key and name not in descriptor.primary_key:
            _refuse(
                f"the bucket key {name!r} is not part of the primary key: "
                f"expected one of {', '.join(descriptor.primary_key)}, so that all changes of a key are in one bucket"
            )
        data_type = descriptor.column(name).data_type
        try:
            # The bytes of several columns are hashed together, whatever Iceberg hashes.
            if len(bucket_keys) == 1 or data_type.root in _NO_KEY:
                check_bucket_key_type(data_type)
        except FlussTieringError as error:
            _refuse(f"the bucket key {name!r}: {error.message}")
        check_key_precision("bucket key", name, data_type)


def _check_named(what: str, names: tuple[str, ...], descriptor: TableDescriptor) -> None:
    known = [column.name for column in descriptor.columns]
    for name in names:
        if name not in known:
            _refuse(f"the {what} names {name!r}, which is no column: expected columns of {', '.join(known)}")
    twice = _first_repeated(names)
    if twice is not None:
        _refuse(f"the {what} names {twice!r} twice: expected each column once")


def _first_repeated(names: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _refuse(message: str) -> NoReturn:
    raise FlussTieringError(ErrorCode.INVALID_TABLE, message)
