"""The keys under which a cluster keeps the rows of primary-key tables (`KeyEncoder.ofPrimaryKeyEncoder`)."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from fluss_tiering.formats.iceberg_key import encode_iceberg_keys
from fluss_tiering.formats.key import encode_keys
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableDescriptor
from fluss_tiering.storage.fluss.supported import ICEBERG, LAKE_FORMAT

_KV_FORMAT_VERSION: Final = "table.kv.format-version"
_LEGACY: Final = "1"
_OWN_KEYS: Final = frozenset({None, "lance"})
"""Lakes for which Fluss has no form of keys besides its own."""


def encode_primary_keys(descriptor: TableDescriptor, records: pa.RecordBatch) -> pa.BinaryArray:
    """The key of each row, without what its partition says.

    A key that is the bucket key as a whole, and every key of a table from before there were format versions, has the
    lake's form; the others Fluss's own.

    Args:
        descriptor: of the table, with the options that the cluster gave it.
        records: with at least the key columns, in the Arrow types of the table.

    Raises:
        FlussTieringError: INVALID_ROWS for a null; INVALID_TABLE for keys in the form of another lake.
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
