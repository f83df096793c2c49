"""The columns of compacted rows, and of the arrays, maps and rows in them, as Arrow arrays.

A map (Fluss's `BinaryMap`) is the length of its array of keys, that array, and the array of values. A row in a row has
the layout of a compacted row.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_tiering.formats.buffers import NO_INT32S
from fluss_tiering.formats.compacted.kernels import FIXED32, gather_bytes
from fluss_tiering.formats.compacted.reading import Elements, Fields, Rows, Source, where
from fluss_tiering.formats.compiled import ALL_GOOD, Int32s, Int64s, UInt8s
from fluss_tiering.formats.decimal_kernels import decimals_from_bytes
from fluss_tiering.formats.nested_arrays import positions_of
from fluss_tiering.formats.schema import UNIT_PRECISION, arrow_type
from fluss_tiering.model.data_type import NESTED
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, DataTypeRoot

_NANOSECONDS_IN_MILLISECOND: Final = 1_000_000
_MILLISECONDS_IN_DAY: Final = 86_400_000
_KEYS_SIZE: Final = 4


def column_of(source: Source, column: Column, valid: UInt8s) -> pa.Array:
    """Return the next column of a source.

    Args:
        source: The source.
        column: The column. Its name is used in messages.
        valid: 0 for each null and 1 for each value, or an empty array if there is no null.

    Raises:
        FlussTieringError: CORRUPT_DATA if the source holds something that is not a value of the type.
    """
    fields = source.fields(column, valid)
    if column.data_type.root in NESTED:
        return _nested(source, column, valid, fields)
    buffers: tuple[npt.NDArray[Any], ...]
    kind = arrow_type(column.data_type)
    stored_as = kind
    match column.data_type.root:
        case DataTypeRoot.BOOLEAN:
            buffers = (np.packbits(fields.small != 0, bitorder="little"),)
        case DataTypeRoot.TINYINT:
            buffers = (fields.small.astype(np.int8),)
        case DataTypeRoot.SMALLINT:
            buffers = (fields.small.astype(np.int16),)
        case DataTypeRoot.INT | DataTypeRoot.FLOAT | DataTypeRoot.DATE:
            buffers = (fields.small,)
        case DataTypeRoot.TIME:
            buffers = (_time_counts(source, column, fields.small),)
        case DataTypeRoot.STRING | DataTypeRoot.CHAR | DataTypeRoot.BYTES:
            buffers = _string_buffers(source, fields)
        case DataTypeRoot.BINARY:
            _check_lengths(source, column, valid, fields.small)
            stored_as = pa.binary()
            buffers = _string_buffers(source, fields)
        case DataTypeRoot.DECIMAL:
            buffers = (_decimal_words(source, column, valid, fields),)
        case DataTypeRoot.TIMESTAMP | DataTypeRoot.TIMESTAMP_LTZ:
            buffers = (_timestamp_counts(source, column, fields),)
        case _:
            buffers = (fields.large,)
    bitmap = pa.py_buffer(np.packbits(valid, bitorder="little")) if valid.size else None
    array = pa.Array.from_buffers(stored_as, source.count, [bitmap, *map(pa.py_buffer, buffers)])
    if column.data_type.root in {DataTypeRoot.STRING, DataTypeRoot.CHAR, DataTypeRoot.DECIMAL}:
        _check_content(array, column)
    return array if stored_as is kind else array.cast(kind)


def _nested(source: Source, column: Column, valid: UInt8s, fields: Fields) -> pa.Array:
    parts = [Column(f"{column.name}.{part.name}", part.data_type) for part in column.data_type.fields]
    starts, ends = fields.large, fields.large + fields.small
    kind = arrow_type(column.data_type)
    # `pa.array` loads pandas, which takes longer than to read a small snapshot.
    bits = pa.py_buffer(np.packbits(valid == 0, bitorder="little"))
    nulls = pa.Array.from_buffers(pa.bool_(), valid.size, [None, bits]) if valid.size else None
    if column.data_type.root is DataTypeRoot.ROW:
        place = f"in column {column.name!r} "
        rows = Rows(source.data, starts, ends, columns=len(parts), refuse=source.refuse, present=valid, place=place)
        validities = rows.validities(parts, strict=False)
        arrays = [column_of(rows, part, present) for part, present in zip(parts, validities, strict=True)]
        rows.check_ends()
        return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=nulls)
    if column.data_type.root is DataTypeRoot.ARRAY:
        elements = Elements(source, starts, ends, present=valid, column=column, element=parts[0].data_type)
        array = column_of(elements, parts[0], elements.valid)
        return pa.ListArray.from_arrays(positions_of(elements.counts), array, kind, mask=nulls)
    middles = starts + _KEYS_SIZE + _keys_sizes(source, column, valid, starts, ends)
    keys, values = (
        Elements(source, first, end, present=valid, column=column, element=part.data_type)
        for first, end, part in zip((starts + _KEYS_SIZE, middles), (middles, ends), parts, strict=True)
    )
    source.refuse_any(keys.counts != values.counts, f"does not have one value for each key in column {column.name!r}")
    keys.refuse_any(keys.valid == 0, f"has a key that is null in column {column.name!r}")
    arrays = [column_of(each, part, each.valid) for each, part in zip((keys, values), parts, strict=True)]
    return pa.MapArray.from_arrays(positions_of(keys.counts), *arrays, kind, mask=nulls)


def _keys_sizes(source: Source, column: Column, valid: UInt8s, starts: Int64s, ends: Int64s) -> Int32s:
    """Return the length of each map's array of keys, which is 0 for a null."""
    what = f"holds no {column.data_type.root} in column {column.name!r}"
    sizes, _ = source.read(FIXED32, what, valid, ends, starts.copy())
    source.refuse_any(where(valid, (sizes < 0) | (sizes > ends - starts - _KEYS_SIZE)), what)
    return sizes


def _string_buffers(source: Source, fields: Fields) -> tuple[Int32s, UInt8s]:
    offsets = np.zeros(source.count + 1, np.int32)
    np.cumsum(fields.small, out=offsets[1:])
    text = np.empty(offsets[-1], np.uint8)
    gather_bytes(source.data, fields.large, offsets, text)
    return offsets, text


def _decimal_words(source: Source, column: Column, valid: UInt8s, fields: Fields) -> Int64s:
    """Return the halves of decimals that were read as numbers, or as bytes if there are lengths."""
    words = np.empty(2 * source.count, np.int64)
    lengths = fields.small
    if lengths is NO_INT32S:
        words[::2] = fields.large
        words[1::2] = fields.large >> 63
        return words
    bad = decimals_from_bytes(source.data, valid, fields.large, lengths, words)
    if bad != ALL_GOOD:
        source.refuse(bad, f"has {lengths[bad]} bytes for the decimal in column {column.name!r}, expected 1 to 16")
    return words


def _time_counts(source: Source, column: Column, milliseconds: Int32s) -> npt.NDArray[Any]:
    """Return the counts in the unit of the column's Arrow type."""
    source.refuse_any(
        (milliseconds < 0) | (milliseconds >= _MILLISECONDS_IN_DAY),
        f"has a time outside of a day in column {column.name!r}",
    )
    kind = arrow_type(column.data_type)
    digits = UNIT_PRECISION[kind.unit]
    if kind.bit_width == 32:
        counts: npt.NDArray[Any] = milliseconds if digits else milliseconds // 1000
    else:
        counts = milliseconds.astype(np.int64) * 10 ** (digits - 3)
    return counts


def _check_lengths(source: Source, column: Column, valid: UInt8s, lengths: Int32s) -> None:
    width = column.data_type.length
    wrong = where(valid, lengths != width)
    source.refuse_any(wrong, f"does not have {width} bytes in column {column.name!r}")


def _timestamp_counts(source: Source, column: Column, fields: Fields) -> Int64s:
    """Return the counts in the unit of the column's Arrow type."""
    per_second = 10 ** UNIT_PRECISION[arrow_type(column.data_type).unit]
    milliseconds, nanoseconds = fields.large, fields.nanoseconds
    if nanoseconds is None:
        seconds_or_milliseconds: Int64s = milliseconds // (1000 // per_second)
        return seconds_or_milliseconds
    source.refuse_any(
        (nanoseconds < 0) | (nanoseconds >= _NANOSECONDS_IN_MILLISECOND),
        f"has more nanoseconds than a millisecond in column {column.name!r}",
    )
    per_millisecond = per_second // 1000
    counts: Int64s = milliseconds * per_millisecond + nanoseconds // (_NANOSECONDS_IN_MILLISECOND // per_millisecond)
    # If the product needs more than 64 bits, it has wrapped around and the division does not give the milliseconds.
    source.refuse_any(
        counts // per_millisecond != milliseconds,
        f"has a timestamp in column {column.name!r} that {arrow_type(column.data_type)} cannot hold",
    )
    return counts


def _check_content(array: pa.Array, column: Column) -> None:
    """Check that text is UTF-8 and that a decimal has no more digits than its precision."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        raise FlussTieringError(
            ErrorCode.CORRUPT_DATA, f"a stored value has no valid {column.data_type} in column {column.name!r}: {error}"
        ) from error
