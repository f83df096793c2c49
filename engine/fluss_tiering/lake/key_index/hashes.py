"""The hashes of primary keys, under which the index knows them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_tiering.formats.compiled import INT64_IN, INT64_OUT, UINT8_IN, Int64s, UInt8s, compiled
from fluss_tiering.lake.key_index.kernels import hash_messages
from fluss_tiering.lake.key_index.place import uuid_bytes
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

UInt64s = npt.NDArray[np.uint64]
Values: TypeAlias = pa.Array | pa.ChunkedArray

_ROWS_AT_ONCE: Final = 1 << 16
_MICROS: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}
_NANOS_PER_MICRO: Final = 1_000
_INTEGERS: Final = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}


@dataclass(frozen=True, slots=True, eq=False)
class Hashes:
    """Hashes of 128 bits each.

    Attributes:
        high: The half by which hashes are sorted.
        low: The other half.
    """

    high: UInt64s
    low: UInt64s

    def __len__(self) -> int:
        return len(self.high)

    def take(self, indexes: Int64s) -> Hashes:
        """Return the hashes with these indexes."""
        return Hashes(self.high[indexes], self.low[indexes])

    def slice(self, start: int, end: int) -> Hashes:
        """Return the hashes from `start` on and before `end`, without a copy."""
        return Hashes(self.high[start:end], self.low[start:end])

    @staticmethod
    def empty() -> Hashes:
        """Return no hashes."""
        return Hashes(np.empty(0, np.uint64), np.empty(0, np.uint64))

    @staticmethod
    def concat(parts: Sequence[Hashes]) -> Hashes:
        """Return the hashes of all parts, in their order."""
        if not parts:
            return Hashes.empty()
        return Hashes(np.concatenate([each.high for each in parts]), np.concatenate([each.low for each in parts]))


def hash_keys(columns: Sequence[Values], table_uuid: str) -> Hashes:
    """Return the hash of each row's primary key.

    It is SipHash-2-4 with 128 bits under the UUID of the Iceberg table. The keys of two rows are equal exactly if their
    hashes are: with a billion keys in a place, the probability that any two different keys have the same hash is below
    10^-20, and nobody can choose keys for which it is greater in another table.

    A value has the same hash in each Arrow type in which it is met: integers of every width, dates, times and
    timestamps of every unit, texts and binaries of every layout, and dictionaries of them. Of times and timestamps,
    microseconds count, which is what the lake has of them. Floating-point numbers are compared by their bits.

    Args:
        columns: The key columns, in the order of the primary key; all of the same length.

    Raises:
        FlussTieringError: INVALID_ROWS if a value is null; INVALID_TABLE if a column's type cannot be that of a key;
            INVALID_REQUEST if there is no column, if the columns have different lengths, or if the text is no UUID.
    """
    key = uuid_bytes(table_uuid)
    rows = _length(columns)
    k0, k1 = np.frombuffer(key, "<i8")
    high, low = np.empty(rows, np.int64), np.empty(rows, np.int64)
    start = 0
    for parts in _parts(columns, rows):
        end = start + len(parts[0])
        words, starts = _messages(parts)
        hash_messages(words, starts, int(k0), int(k1), high[start:end], low[start:end])
        start = end
    return Hashes(high.view(np.uint64), low.view(np.uint64))


def _length(columns: Sequence[Values]) -> int:
    lengths = sorted({len(each) for each in columns})
    if len(lengths) != 1:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"the key columns have {', '.join(map(str, lengths)) or 'no'} rows: expected at least one column, and the "
            "same number of rows in each",
        )
    return lengths[0]


def _parts(columns: Sequence[Values], rows: int) -> Iterator[list[pa.Array]]:
    """Yield the columns in parts of so few rows that their messages stay in the processor's cache."""
    for start in range(0, rows, _ROWS_AT_ONCE):
        yield [_one_array(each.slice(start, _ROWS_AT_ONCE)) for each in columns]


def _one_array(values: Values) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        values = values.chunk(0) if values.num_chunks == 1 else pa.concat_arrays(_same_dictionaries(values).chunks)
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if values.null_count:
        raise FlussTieringError(ErrorCode.INVALID_ROWS, "a key column is null in a row: expected a value")
    return values


def _same_dictionaries(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values


def _messages(columns: Sequence[pa.Array]) -> tuple[Int64s, Int64s]:
    """Return the words of the rows' messages, and where they start.

    A number is one word, a decimal two. A text or a binary is its length in bytes and then its bytes, filled up with
    zeros. So no two different keys of a table have the same message.
    """
    encoded = [_bytes_of(each) if _has_bytes(each.type) else _words_of(each) for each in columns]
    rows = len(columns[0])
    if len(encoded) == 1 and isinstance(encoded[0], np.ndarray) and encoded[0].shape[1] == 1:
        return encoded[0][:, 0], np.arange(rows + 1)
    sizes = np.zeros(rows, np.int64)
    for each in encoded:
        sizes += each.shape[1] if isinstance(each, np.ndarray) else 1 + (np.diff(each[0]) + 7) // 8
    starts = np.zeros(rows + 1, np.int64)
    np.cumsum(sizes, out=starts[1:])
    words = np.zeros(starts[-1], np.int64)
    at = starts[:-1].copy()
    for each in encoded:
        if isinstance(each, np.ndarray):
            for number in range(each.shape[1]):
                words[at] = each[:, number]
                at += 1
        else:
            _put_bytes(*each, at, words.view(np.uint8))
    return words, starts


@compiled(INT64_IN, UINT8_IN, INT64_OUT, "Array(uint8, 1, 'C')", result="int64")
def _put_bytes(offsets: Int64s, data: UInt8s, at: Int64s, words: UInt8s) -> int:
    """Put byte strings with their lengths into words, at the words of these indexes, which are moved behind them."""
    for i in range(at.size):
        length = offsets[i + 1] - offsets[i]
        place = at[i] * 8
        for j in range(8):
            words[place + j] = (length >> (8 * j)) & 255
        for j in range(length):
            words[place + 8 + j] = data[offsets[i] + j]
        at[i] += 1 + (length + 7) // 8
    return 0


def _has_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_string(kind)
        or types.is_binary(kind)
        or types.is_large_string(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
        or types.is_string_view(kind)
        or types.is_binary_view(kind)
    )


def _bytes_of(column: pa.Array) -> tuple[Int64s, UInt8s]:
    """Return the positions of the byte strings, one more than there are, and the bytes to which they point."""
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.string())
    column = column.cast(pa.large_binary())
    _, positions, data = column.buffers()
    offsets = np.frombuffer(positions, np.int64, len(column) + 1, 8 * column.offset)
    return offsets, np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)


def _words_of(column: pa.Array) -> Int64s:
    """Return the words of each value, in rows."""
    kind, types = column.type, pa.types
    if types.is_decimal(kind):
        column = column if types.is_decimal128(kind) else column.cast(pa.decimal128(kind.precision, kind.scale))
        return _items(column, np.int64, 2).reshape(-1, 2)
    if types.is_boolean(kind):
        words = _items(column.cast(pa.int8()), np.int8)
    elif types.is_signed_integer(kind) or types.is_date32(kind):
        words = _items(column, _INTEGERS[kind.bit_width])
    elif types.is_float32(kind):
        words = _items(column, np.float32).astype(np.float64).view(np.int64)
    elif types.is_float64(kind):
        words = _items(column, np.int64)
    elif types.is_time(kind) or types.is_timestamp(kind):
        counts = _items(column, _INTEGERS[kind.bit_width]).astype(np.int64)
        words = counts // _NANOS_PER_MICRO if kind.unit == "ns" else counts * _MICROS[kind.unit]
    else:
        raise FlussTieringError(
            ErrorCode.INVALID_TABLE,
            f"a key column has the type {kind}: expected a boolean, a number, a date, a time, a timestamp, a text or a "
            "binary",
        )
    return words.astype(np.int64).reshape(-1, 1)


def _items(column: pa.Array, item: npt.DTypeLike, per_value: int = 1) -> npt.NDArray[Any]:
    start = column.offset * per_value * np.dtype(item).itemsize
    return np.frombuffer(column.buffers()[1], item, len(column) * per_value, start)
