"""The keys under which a cluster stores the rows of primary-key tables (`KeyEncoder.ofPrimaryKeyEncoder`)."""

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
"""The lake formats for which Fluss encodes keys in its own form."""


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
