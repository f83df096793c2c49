"""The bucket that a row belongs to, by Iceberg's bucket transform.

The bucket of a row in Fluss is also its bucket in the lake. For a table that is tiered into Iceberg, Fluss hashes the
bytes of the bucket key with murmur3 (x86, 32 bits, seed 0). Appendix B of Iceberg's specification defines these bytes.
The bucket is the lower 31 bits of the hash modulo the number of buckets (`IcebergBucketingFunction` and
`IcebergKeyEncoder` in Fluss).
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from fluss_tiering.formats.buffers import byte_strings, decimal_bytes, numbers
from fluss_tiering.formats.compiled import (
    INT32,
    INT32_IN,
    INT32_OUT,
    INT64_IN,
    UINT8_IN,
    Int32s,
    Int64s,
    UInt8s,
    compiled,
    helper,
)
from fluss_tiering.formats.schema import UNIT_PRECISION
from fluss_tiering.model.data_type import NESTED
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import DataType, DataTypeRoot

_HASHED: Final = frozenset(DataTypeRoot) - {DataTypeRoot.BOOLEAN, DataTypeRoot.FLOAT, DataTypeRoot.DOUBLE} - NESTED
"""Iceberg's bucket transform is not defined for the other types."""
_C1: Final = np.uint32(0xCC9E2D51)
_C2: Final = np.uint32(0x1B873593)
_ADDED: Final = np.uint32(0xE6546B64)
_FINAL_1: Final = np.uint32(0x85EBCA6B)
_FINAL_2: Final = np.uint32(0xC2B2AE35)
_LOWER_31_BITS: Final = 0x7FFFFFFF


def check_bucket_key_type(data_type: DataType) -> None:
    """Check that a column of this type may be the bucket key.

    Raises:
        FlussTieringError: INVALID_TABLE if Iceberg's bucket transform does not take this type.
    """
    if data_type.root not in _HASHED:
        expected = ", ".join(root for root in DataTypeRoot if root in _HASHED)
        raise FlussTieringError(
            ErrorCode.INVALID_TABLE,
            f"a column of type {data_type} cannot be the bucket key: expected one of {expected}",
        )


def assign_buckets(values: pa.Array, data_type: DataType, num_buckets: int) -> Int32s:
    """Return the bucket of each value of the bucket key, from 0 to `num_buckets` - 1.

    Fluss 0.9 does not take TINYINT, SMALLINT and TIMESTAMP_LTZ as the bucket key of a lake table. Their values are
    hashed as Iceberg's specification says for the type in the lake.

    Args:
        values: The values, in the Arrow type of the column.
        num_buckets: The number of buckets, at least 1.

    Raises:
        FlussTieringError: INVALID_TABLE if the type cannot be a bucket key; INVALID_ROWS if a value is null.
    """
    check_bucket_key_type(data_type)
    if values.null_count:
        raise FlussTieringError(ErrorCode.INVALID_ROWS, "the bucket key is null in a row: expected a value")
    buckets = np.empty(len(values), np.int32)
    match data_type.root:
        case DataTypeRoot.CHAR | DataTypeRoot.STRING | DataTypeRoot.BINARY | DataTypeRoot.BYTES:
            _bucket_bytes(*byte_strings(values), num_buckets, buckets)
        case DataTypeRoot.TIME:
            _bucket_longs(numbers(values, data_type) * 1000, num_buckets, buckets)
        case DataTypeRoot.DECIMAL:
            _bucket_bytes(*decimal_bytes(values), num_buckets, buckets)
        case DataTypeRoot.TIMESTAMP | DataTypeRoot.TIMESTAMP_LTZ:
            _bucket_longs(
                _microseconds(numbers(values, data_type), UNIT_PRECISION[values.type.unit]), num_buckets, buckets
            )
        case _:
            _bucket_longs(numbers(values, data_type), num_buckets, buckets)
    return buckets


def _microseconds(counts: Int64s, digits: int) -> Int64s:
    return counts // 1000 if digits == 9 else counts * np.int64(10 ** (6 - digits))


@helper
def _scramble(block: np.uint32) -> np.uint32:
    block = np.uint32(block * _C1)
    return np.uint32(np.uint32((block << 15) | (block >> 17)) * _C2)


@helper
def _mix(state: np.uint32, block: np.uint32) -> np.uint32:
    state ^= _scramble(block)
    return np.uint32(np.uint32((state << 13) | (state >> 19)) * np.uint32(5) + _ADDED)


@helper
def _bucket(state: np.uint32, length: int, num_buckets: int) -> int:
    state = np.uint32(state ^ np.uint32(length))
    state = np.uint32((state ^ (state >> 16)) * _FINAL_1)
    state = np.uint32((state ^ (state >> 13)) * _FINAL_2)
    state = np.uint32(state ^ (state >> 16))
    return int(np.int64(state) & _LOWER_31_BITS) % num_buckets


@compiled(INT64_IN, INT32, INT32_OUT, result=INT32)
def _bucket_longs(values: Int64s, num_buckets: int, buckets: Int32s) -> int:
    for i in range(values.size):
        value = np.uint64(values[i])
        state = _mix(np.uint32(0), np.uint32(value))
        state = _mix(state, np.uint32(value >> np.uint64(32)))
        buckets[i] = _bucket(state, 8, num_buckets)
    return 0


@compiled(INT32_IN, UINT8_IN, INT32, INT32_OUT, result=INT32)
def _bucket_bytes(offsets: Int32s, data: UInt8s, num_buckets: int, buckets: Int32s) -> int:
    for i in range(buckets.size):
        length = offsets[i + 1] - offsets[i]
        state = np.uint32(0)
        block = np.uint32(0)
        for j in range(length):
            block = np.uint32(block | (np.uint32(data[offsets[i] + j]) << (8 * (j & 3))))
            if j & 3 == 3:
                state = _mix(state, block)
                block = np.uint32(0)
        if length & 3:
            state ^= _scramble(block)
        buckets[i] = _bucket(state, length, num_buckets)
    return 0
