"""How a cluster stores its tables: which formats are read, written and tiered here, and the keys of rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from fluss_tiering.formats.compacted.value_layout import VALUE_LAYOUTS, ValueLayout
from fluss_tiering.formats.keys import encode_iceberg_keys, encode_keys
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableDescriptor, TableInfo, TablePath, lake_path_of
from fluss_tiering.model.table_options import LAKE_ENABLED, check_tiering_options, is_set
from fluss_tiering.storage.lake_rules import check_key_precision

LAKE_FORMAT: Final = "table.datalake.format"
ICEBERG: Final = "iceberg"
_VALUE_LAYOUT: Final = "table.kv.value-layout-version"
_OLDEST_VALUE_LAYOUT: Final = "1"
_FORMATS: Final = {"table.log.format": "ARROW", "table.kv.format": "COMPACTED"}
_KV_FORMAT_VERSION: Final = "table.kv.format-version"
_LEGACY: Final = "1"
_OWN_KEYS: Final = frozenset({None, "lance"})
"""The lake formats for which Fluss encodes keys in its own form."""


def check_stored(path: TablePath, properties: Mapping[str, str]) -> None:
    """Check that a table's rows are stored in formats that are supported here.

    Raises:
        FlussTieringError: INVALID_TABLE if an option names another format.
    """
    for key, expected in _FORMATS.items():
        value = properties.get(key, expected)
        if value.upper() != expected:
            raise FlussTieringError(
                ErrorCode.INVALID_TABLE,
                f"table {path} has {key}={value}: expected {expected}, the only one that is read and written here",
            )


def value_layout(table: TableInfo) -> ValueLayout:
    """Return the layout of the values in a primary-key table's KV snapshots. A coordinator of Fluss 0.9.1 sets none.

    Raises:
        FlussTieringError: INVALID_TABLE if the layout is not supported here. The table's log can be read all the same.
    """
    version = table.descriptor.properties.get(_VALUE_LAYOUT, _OLDEST_VALUE_LAYOUT)
    layout = VALUE_LAYOUTS.get(version)
    if layout is None:
        raise FlussTieringError(
            ErrorCode.INVALID_TABLE,
            f"table {table.path} has {_VALUE_LAYOUT}={version}: expected {' or '.join(VALUE_LAYOUTS)}, the layouts of "
            "KV snapshots that are read here; upgrade this package, and the round is tried again",
        )
    return layout


def check_tierable(path: TablePath, descriptor: TableDescriptor) -> None:
    """Check that a table can be tiered if its options ask for it.

    Raises:
        FlussTieringError: INVALID_TABLE if it cannot.
    """
    properties = descriptor.properties
    # One table that the server cannot register would keep it from registering the others.
    check_tiering_options(properties)
    if not is_set(properties, LAKE_ENABLED):
        return
    check_stored(path, properties)
    lake_format = properties.get(LAKE_FORMAT)
    if lake_format != ICEBERG:
        raise FlussTieringError(
            ErrorCode.INVALID_TABLE,
            f"table {path} is tiered into {lake_format or 'no lake'}: expected {LAKE_FORMAT}={ICEBERG}, the only lake "
            "that is written here; leave it to the tiering service of that lake",
        )
    lake_path_of(path, properties)
    for name in descriptor.primary_key:
        try:
            check_key_precision("primary key", name, descriptor.column(name).data_type)
        except FlussTieringError as error:
            raise FlussTieringError(
                error.code, f"table {path} cannot be tiered: {error.message}; make a table with another key"
            ) from None


def encode_primary_keys(descriptor: TableDescriptor, records: pa.RecordBatch) -> pa.BinaryArray:
    """Return the encoded key of each row, without the partition keys.

    Keys are encoded in the lake's form if the whole key is the bucket key, or if the table is older than Fluss's format
    versions. Other keys are encoded in Fluss's own form.

    Args:
        descriptor: The table's descriptor, with the options that the cluster gave it.
        records: The rows, with at least the key columns, in the table's Arrow types.

    Raises:
        FlussTieringError: INVALID_ROWS if a key has a null; INVALID_TABLE if keys are in the form of another lake.
    """
    key = tuple(name for name in descriptor.primary_key if name not in descriptor.partition_keys)
    properties = descriptor.properties
    lake_format = properties.get(LAKE_FORMAT)
    if properties.get(_KV_FORMAT_VERSION, _LEGACY) == _LEGACY or descriptor.bucket_keys == key:
        if lake_format == ICEBERG:
            return encode_iceberg_keys(records, descriptor.column(key[0]))
        if lake_format not in _OWN_KEYS:
            raise FlussTieringError(
                ErrorCode.INVALID_TABLE,
                f"the table's keys are in the form of {lake_format}: expected {LAKE_FORMAT}={ICEBERG}; use a client of "
                "Fluss for it",
            )
    return encode_keys(records, [descriptor.column(name) for name in key])
