"""The keys under which a cluster keeps the rows of primary-key tables (`KeyEncoder.ofPrimaryKeyEncoder`)."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from fluss_tiering.formats.iceberg_key import encode_iceberg_keys
from fluss_tiering.formats.key import encode_keys
from fluss_tiering.model.table import TableDescriptor
from fluss_tiering.storage.fluss.supported import ICEBERG, LAKE_FORMAT

_KV_FORMAT_VERSION: Final = "table.kv.format-version"
_LEGACY: Final = "1"


def encode_primary_keys(descriptor: TableDescriptor, records: pa.RecordBatch) -> pa.BinaryArray:
    """The key of each row, without what its partition says.

    A key that is the bucket key as a whole, and every key of a table from before there were format versions, has the
    lake's form; the others Fluss's own.

    Args:
        descriptor: of the table, with the options that the cluster gave it.
        records: with at least the key columns, in the Arrow types of the table.

    Raises:
        FlussTieringError: INVALID_ROWS for a null.
    """
    key = tuple(name for name in descriptor.primary_key if name not in descriptor.partition_keys)
    properties = descriptor.properties
    legacy = properties.get(_KV_FORMAT_VERSION, _LEGACY) == _LEGACY
    if properties.get(LAKE_FORMAT) == ICEBERG and (legacy or descriptor.bucket_keys == key):
        return encode_iceberg_keys(records, descriptor.column(key[0]))
    return encode_keys(records, [descriptor.column(name) for name in key])
