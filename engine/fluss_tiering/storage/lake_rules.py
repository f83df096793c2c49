"""The rules for a table's definition that its Iceberg table needs.

They are checked when the table is created, when it has no rows yet.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa

from fluss_tiering.model.data_type import NESTED
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake_table_properties import expected_of_bloom_filters, expected_of_commits
from fluss_tiering.model.partition_by import expected_type, parse_partition_by
from fluss_tiering.model.table import SYSTEM_COLUMNS, DataType, DataTypeRoot, TableDescriptor, TablePath
from fluss_tiering.model.table_options import (
    CUSTOM_PREFIX,
    DELETE_FILES,
    EXISTING_ROWS,
    FORMAT_VERSIONS,
    ICEBERG_CODEC,
    ICEBERG_FIXED,
    ICEBERG_FORMAT_VERSION,
    ICEBERG_LEVEL,
    ICEBERG_TARGET_FILE_SIZE,
    LAKE_COMMIT_BRANCH,
    LAKE_DATABASE_NAME,
    LAKE_DELETE_FILES,
    LAKE_EXISTING_ROWS,
    LAKE_LAYOUT,
    LAKE_PARTITION_BY,
    LAKE_RECORD_TIME_FIELD,
    LAKE_SORT_BY,
    LAKE_TABLE_NAME,
    LAKE_TABLE_PREFIX,
    LAYOUTS,
    OWN_OF_CLUSTERS,
    OWN_PREFIX,
    delete_files_of,
    record_expiry,
    sort_columns_of,
)

_MAX_KEY_TIMESTAMP_PRECISION: Final = 6
"""The lake keeps microseconds, so keys that differ only in nanoseconds would be one key there."""
_MAX_LONG: Final = 2**63 - 1
_UNCOMPRESSED: Final = "uncompressed"
"""Iceberg's word for no compression, the only one that its Java writers know."""

_MAX_INT: Final = 2**31 - 1
_WHOLE_NUMBERS: Final = {
    "commit.manifest.target-size-bytes": _MAX_LONG,
    "history.expire.max-snapshot-age-ms": _MAX_LONG,
    "history.expire.min-snapshots-to-keep": _MAX_INT,
    "write.metadata.previous-versions-max": _MAX_INT,
}
"""Iceberg's properties that only count from 1 on, with the largest number that Java parses. A wrong one would be found
by maintenance alone."""
_DELETE_FILES: Final = (LAKE_DELETE_FILES.key, CUSTOM_PREFIX + LAKE_DELETE_FILES.key)
_NAMES: Final = (
    LAKE_DATABASE_NAME.key,
    LAKE_TABLE_NAME.key,
    LAKE_COMMIT_BRANCH.key,
    CUSTOM_PREFIX + LAKE_COMMIT_BRANCH.key,
)
_TIMES: Final = frozenset({DataTypeRoot.DATE, DataTypeRoot.TIMESTAMP, DataTypeRoot.TIMESTAMP_LTZ})
_TEXTS: Final = frozenset({DataTypeRoot.CHAR, DataTypeRoot.STRING})
_COMPRESSING: Final = ("zstd", "gzip", "snappy", "lz4", "brotli")


def check_lake_rules(descriptor: TableDescriptor) -> None:
    """Check the names of the columns and the options of the lake table, of a table whose bucket key is known.

    Raises:
        FlussTieringError: INVALID_TABLE if a rule is broken.
    """
    rules = (
        _names(descriptor),
        _properties(descriptor.properties),
        _layout(descriptor),
        _delete_files(descriptor),
        _partition(descriptor),
        _sort_order(descriptor),
        _record_expiry(descriptor),
    )
    for objections in rules:
        for message in objections:
            raise FlussTieringError(ErrorCode.INVALID_TABLE, message)


def check_key_precision(what: str, name: str, data_type: DataType) -> None:
    """Check the precision of a key column.

    Args:
        what: The kind of the key, for the message.

    Raises:
        FlussTieringError: INVALID_TABLE if two keys may be one key in the lake.
    """
    is_timestamp = data_type.root in {DataTypeRoot.TIMESTAMP, DataTypeRoot.TIMESTAMP_LTZ}
    if is_timestamp and data_type.precision > _MAX_KEY_TIMESTAMP_PRECISION:
        raise FlussTieringError(
            ErrorCode.INVALID_TABLE,
            f"the {what} column {name!r} is {data_type}: expected a precision of at most "
            f"{_MAX_KEY_TIMESTAMP_PRECISION}, since the lake keeps microseconds",
        )


def _names(descriptor: TableDescriptor) -> Iterator[str]:
    names = [column.name for column in descriptor.columns]
    # Spark ignores the case of column names, and Iceberg's index of lower-case names allows each name only once.
    by_lower_case = {name.lower(): name for name in SYSTEM_COLUMNS}
    for name in names:
        if not name.strip() or any(unicodedata.category(character) == "Cc" for character in name):
            yield f"the column name {name!r} is blank or has control characters: expected printable text"
        other = by_lower_case.setdefault(name.lower(), name)
        if other != name:
            yield (
                f"the columns {other!r} and {name!r} of the lake table differ by case only: "
                "expected names that differ otherwise; rename the column"
            )
    for key in descriptor.bucket_keys:
        partition = f"{key}_bucket"
        if partition in names:
            yield (
                f"the column name {partition!r} is the name of Iceberg's partition field for the bucket key {key!r}: "
                "expected another name; rename the column"
            )


def _properties(properties: Mapping[str, str]) -> Iterator[str]:
    for key in _NAMES:
        if key in properties and (objection := _name_objection(key, properties[key])):
            yield objection
    size = properties.get(ICEBERG_TARGET_FILE_SIZE.key)
    if size is not None and not _is_positive(size):
        yield f"{ICEBERG_TARGET_FILE_SIZE.key} is {size!r}: expected a whole number of bytes above 0"
    for key, values in (
        *((key, DELETE_FILES) for key in _DELETE_FILES),
        (ICEBERG_FORMAT_VERSION.key, FORMAT_VERSIONS),
        (LAKE_LAYOUT.key, LAYOUTS),
        (LAKE_EXISTING_ROWS.key, EXISTING_ROWS),
    ):
        value = properties.get(key)
        if value is not None and value.lower() not in values:
            yield f"{key} is {value!r}: expected {' or '.join(values)}"
    for key in properties:
        if key.startswith(CUSTOM_PREFIX + OWN_PREFIX) and key not in OWN_OF_CLUSTERS:
            yield f"the custom property {key!r} is no option: expected {' or '.join(OWN_OF_CLUSTERS)}"
    for option in ICEBERG_FIXED:
        value = properties.get(option.key, option.default)
        if value.lower() != option.default:
            yield f"{option.key} is {value!r}: expected {option.default}, the only value that tiering writes"
    yield from _of_iceberg(properties)
    codec = properties.get(ICEBERG_CODEC.key, ICEBERG_CODEC.default)
    compressing = [name for name in _COMPRESSING if pa.Codec.is_available(name)]
    if codec.lower() not in (*compressing, _UNCOMPRESSED):
        yield f"{ICEBERG_CODEC.key} is {codec!r}: expected one of {', '.join((*compressing, _UNCOMPRESSED))}"
    elif ICEBERG_LEVEL.key in properties:
        yield from _level(codec.lower(), properties[ICEBERG_LEVEL.key])


def _layout(descriptor: TableDescriptor) -> Iterator[str]:
    properties = descriptor.properties
    if properties.get(LAKE_LAYOUT.key, LAKE_LAYOUT.default).lower() == LAKE_LAYOUT.default:
        return
    if len(descriptor.bucket_keys) > 1:
        yield (
            f"{LAKE_LAYOUT.key} is {properties[LAKE_LAYOUT.key]!r}, while the table has the bucket key "
            f"({', '.join(descriptor.bucket_keys)}), and a legacy lake table is partitioned by the bucket of one "
            "column: expected the option left out, or one of the columns as the bucket key (--bucket-key of "
            "`fluss-tiering tables create`, bucket.key in Fluss)"
        )
    for key in (LAKE_PARTITION_BY.key, LAKE_SORT_BY.key):
        if key in properties:
            yield (
                f"{key} is {properties[key]!r}, while {LAKE_LAYOUT.key} is {properties[LAKE_LAYOUT.key]!r}, and Fluss "
                "decides the partitions and the order of a legacy lake table: expected one of the two options only"
            )


def _delete_files(descriptor: TableDescriptor) -> Iterator[str]:
    for key in _DELETE_FILES:
        value = descriptor.properties.get(key)
        if value is not None and not descriptor.primary_key:
            yield (
                f"{key} is {value!r} for a table without a primary key, whose rounds delete no rows: "
                "expected the option on a table with a primary key only; leave it out, or reset it if the table has it"
            )
        for name in descriptor.partition_keys:
            data_type = descriptor.column(name).data_type
            if value is not None and value.lower() == "equality" and data_type.root not in _TEXTS:
                yield (
                    f"{key} is {value!r}, while the partition key {name!r} is {data_type}, by which rounds write no "
                    "equality deletes: expected STRING, or the option left out"
                )


def _partition(descriptor: TableDescriptor) -> Iterator[str]:
    key = LAKE_PARTITION_BY.key
    text = descriptor.properties.get(key)
    if text is None:
        return
    if descriptor.primary_key and delete_files_of(descriptor.properties) == "equality":
        yield (
            f"{key} is {text!r} and {LAKE_DELETE_FILES.key} is 'equality', while an equality delete does not reach a "
            "row in another partition: leave one of them out"
        )
    columns = {column.name: column.data_type for column in descriptor.columns}
    for each in parse_partition_by(text):
        if each.column not in columns:
            yield f"{key} is {text!r}: there is no column {each.column!r}: expected one of {', '.join(columns)}"
        elif not each.takes(columns[each.column]):
            yield (
                f"{key} is {text!r}: the column {each.column!r} is {columns[each.column]}, and {each.name} expects "
                f"one of {expected_type(each)}"
            )
        elif each.name != "identity" and each.field_name in columns:
            yield (
                f"{key} is {text!r}: Iceberg calls the partition field of {each.in_sql(each.column)} "
                f"{each.field_name!r}, as a column of the table: expected another name; rename the column"
            )
        elif each.column in descriptor.partition_keys and each.name == "identity":
            yield f"{key} is {text!r}: {each.column!r} is a partition key already: leave it out"


def _sort_order(descriptor: TableDescriptor) -> Iterator[str]:
    names = sort_columns_of(descriptor.properties)
    sortable = [column.name for column in descriptor.columns if column.data_type.root not in NESTED]
    for number, name in enumerate(names):
        if name not in sortable or name in names[:number]:
            yield (
                f"{LAKE_SORT_BY.key} is {descriptor.properties[LAKE_SORT_BY.key]!r}: expected names of the columns "
                f"{', '.join(sortable)}, each once, with commas in between"
            )


def _record_expiry(descriptor: TableDescriptor) -> Iterator[str]:
    expiry = record_expiry(descriptor.properties)
    if expiry is None:
        return
    name, _ = expiry
    times = [column.name for column in descriptor.columns if column.data_type.root in _TIMES]
    if name not in times:
        yield (
            f"{LAKE_RECORD_TIME_FIELD.key} is {name!r}: expected a column of one of the types "
            f"{', '.join(sorted(_TIMES))}, which are {', '.join(times) or 'not in this table'}"
        )


def _is_positive(value: str, limit: int = _MAX_LONG) -> bool:
    return re.fullmatch("[0-9]{1,19}", value) is not None and 0 < int(value) <= limit


def _of_iceberg(properties: Mapping[str, str]) -> Iterator[str]:
    for key, value in properties.items():
        if key.startswith(LAKE_TABLE_PREFIX):
            name = key.removeprefix(LAKE_TABLE_PREFIX)
            if expected := _expected_of_iceberg(name, value):
                yield f"{key} is {value!r}: expected {expected}"


def _expected_of_iceberg(name: str, value: str) -> str | None:
    limit = _WHOLE_NUMBERS.get(name)
    if limit is not None and not _is_positive(value, limit):
        return f"a whole number from 1 to {limit}"
    return expected_of_bloom_filters(name, value) or expected_of_commits(name, value)


def _name_objection(key: str, name: str) -> str | None:
    try:
        TablePath(name, name)
    except FlussTieringError:
        return f"{key} is {name!r}: expected 1 to 200 letters, digits, '_' or '-', no '__' first"
    return None


def _level(codec: str, level: str) -> Iterator[str]:
    try:
        lowest, highest = pa.Codec.minimum_compression_level(codec), pa.Codec.maximum_compression_level(codec)
    except (pa.ArrowInvalid, ValueError):
        yield f"{ICEBERG_LEVEL.key} is {level!r}: expected it to be absent, since {codec} has no levels"
        return
    if not (re.fullmatch("-?[0-9]{1,10}", level) and lowest <= int(level) <= highest):
        yield f"{ICEBERG_LEVEL.key} is {level!r}: expected a whole number from {lowest} to {highest} for {codec}"
