"""The columns of compacted rows, and of the arrays, maps and rows in them, as Arrow arrays.

No byte outside of a row or an array is ever read. An array (Fluss's `BinaryArray`) begins with its count, null bits in
whole groups of 32, and a slot of fixed width for each element. Elements that do not fit into a slot of eight bytes come
after the slots. The slot then has the place and the length of the element. A map (Fluss's `BinaryMap`) is the length of
its array of keys, that array, and the array of values. A row in a row has the layout of a compacted row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_tiering.formats.buffers import NO_BYTES, NO_INT32S, NO_INT64S, decimals_from_bytes
from fluss_tiering.formats.compacted.kernels import BYTES, FIXED32, FIXED64, VARINT64, gather_bytes, read_field
from fluss_tiering.formats.compacted.writing import (
    COUNT_SIZE,
    MAX_IN_SLOT,
    array_heads,
    element_slot,
    field_kinds,
    null_bytes,
)
from fluss_tiering.formats.compiled import ALL_GOOD, Int32s, Int64s, UInt8s
from fluss_tiering.formats.nested_arrays import positions_of
from fluss_tiering.formats.schema import UNIT_PRECISION, arrow_type
from fluss_tiering.model.data_type import NESTED, DataType
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, DataTypeRoot

Refuse = Callable[[int, str], NoReturn]
Flags = npt.NDArray[np.bool_]
_LOW_32_BITS: Final = 0xFFFFFFFF
_NANOSECONDS_IN_MILLISECOND: Final = 1_000_000
_MILLISECONDS_IN_DAY: Final = 86_400_000
_KEYS_SIZE: Final = 4


class Fields(NamedTuple):
    """The numbers that stand for the values of a column. The numbers of a null are 0.

    Attributes:
        small: Numbers of up to 32 bits, or the lengths of bytes.
        large: Numbers of up to 64 bits, the positions of bytes, or the milliseconds of timestamps.
        nanoseconds: The nanoseconds in the milliseconds, if the type of the timestamps has them.
    """

    small: Int32s
    large: Int64s
    nanoseconds: Int32s | None = None


class Source(ABC):
    """A source of columns that lie in some bytes and have the same number of values.

    Attributes:
        data: The bytes to which positions point.
        count: The number of values in each column.
        refuse: The function that raises the error for a corrupt value. It takes the index of the value and the reason.
    """

    def __init__(self, data: UInt8s, count: int, refuse: Refuse) -> None:
        self.data = data
        self.count = count
        self.refuse = refuse

    @abstractmethod
    def fields(self, column: Column, valid: UInt8s) -> Fields:
        """Return the fields of a column. Nothing is read for values for which `valid` is 0."""

    def refuse_any(self, bad: Flags, what: str) -> None:
        """Refuse the first bad value, if there is one."""
        if bad.any():
            self.refuse(int(bad.argmax()), what)

    def read(self, kind: int, what: str, valid: UInt8s, ends: Int64s, cursor: Int64s) -> tuple[Int32s, Int64s]:
        """Return what `read_field` reads, and 0 for nulls. Refuse a value that is not there, for the reason `what`."""
        out32 = NO_INT32S if kind in {VARINT64, FIXED64} else np.zeros(self.count, np.int32)
        out64 = np.zeros(self.count, np.int64) if kind in {VARINT64, FIXED64, BYTES} else NO_INT64S
        bad = read_field(kind, valid, self.data, ends, cursor, out32, out64)
        if bad != ALL_GOOD:
            self.refuse(bad, what)
        return out32, out64


class Rows(Source):
    """Compacted rows, which are read field by field.

    Args:
        data: The bytes to which positions point.
        starts: The position at which each row starts.
        ends: The position at which each row ends.
        refuse: The function that raises the error for a corrupt value.
        present: 0 where there is no row, or an empty array if there is a row everywhere.
        place: The place of the rows in the values that `refuse` names, with a space after it.
    """

    def __init__(
        self,
        data: UInt8s,
        starts: Int64s,
        ends: Int64s,
        *,
        columns: int,
        refuse: Refuse,
        present: UInt8s = NO_BYTES,
        place: str = "",
    ) -> None:
        super().__init__(data, starts.size, refuse)
        self._place = place
        header_size = null_bytes(columns)
        self._present = present
        self.refuse_any(where(present, ends - starts < header_size), f"{place}is shorter than its null bits")
        self._null_bits = starts
        self._ends = ends
        self._cursor = starts + header_size

    def validities(self, columns: Sequence[Column], *, strict: bool) -> Iterator[UInt8s]:
        """Yield for each column 1 for each value and 0 for each null, or an empty array if there is no null.

        Args:
            strict: Whether a null in a NOT NULL column is refused.
        """
        for index, column in enumerate(columns):
            if index % 8 == 0:
                bits = self._bits(index // 8)
                seen = int(np.bitwise_or.reduce(bits, initial=0))
            if not seen >> index % 8 & 1:
                yield NO_BYTES
                continue
            nulls: UInt8s = bits >> np.uint8(index % 8) & np.uint8(1)
            if strict and not column.data_type.nullable:
                self.refuse_any(nulls != 0, f"has a null for column {column.name!r}, which is {column.data_type}")
            yield nulls ^ np.uint8(1)

    def fields(self, column: Column, valid: UInt8s) -> Fields:
        """Return the next field of each row."""
        what = f"holds no {column.data_type.root} in column {column.name!r}"
        first, *rest = field_kinds(column.data_type)
        found = Fields(*self.read(first, what, valid, self._ends, self._cursor))
        for kind in rest:
            found = found._replace(nanoseconds=self.read(kind, what, valid, self._ends, self._cursor)[0])
        return found

    def check_ends(self) -> None:
        """Refuse rows that go on after the fields that were read."""
        self.refuse_any(where(self._present, self._cursor != self._ends), f"{self._place}goes on after its last column")

    def _bits(self, byte: int) -> UInt8s:
        """Return a byte of each row's null bits. All bits are set where there is no row."""
        if not self._present.size:
            return self.data[self._null_bits + byte]
        bits = np.full(self.count, 0xFF, np.uint8)
        there = np.flatnonzero(self._present)
        bits[there] = self.data[self._null_bits[there] + byte]
        return bits


class Elements(Source):
    """The elements of arrays, one after the other.

    Args:
        arrays: The source that holds the arrays.
        starts: The position at which each array starts.
        ends: The position at which each array ends.
        present: 0 where there is no array, or an empty array if there is one everywhere.
        column: The column that holds the arrays.

    Attributes:
        counts: The number of elements of each array. It is 0 where there is no array.
        valid: 0 for each null and 1 for each other element, or an empty array if there is no null.
    """

    def __init__(
        self,
        arrays: Source,
        starts: Int64s,
        ends: Int64s,
        *,
        present: UInt8s,
        column: Column,
        element: DataType,
    ) -> None:
        self._what = f"holds no {column.data_type.root} in column {column.name!r}"
        self._slot_kind, width = element_slot(element)
        counts, _ = arrays.read(FIXED32, self._what, present, ends, starts.copy())
        self.counts = counts.astype(np.int64)
        heads = array_heads(self.counts)
        bad = (self.counts < 0) | (heads + self.counts * width > ends - starts)
        arrays.refuse_any(where(present, bad), self._what)
        lists = np.repeat(np.arange(arrays.count), self.counts)

        def refuse(index: int, what: str) -> NoReturn:
            arrays.refuse(int(lists[index]), what)

        super().__init__(arrays.data, lists.size, refuse)
        within = np.arange(lists.size) - np.repeat(np.cumsum(self.counts) - self.counts, self.counts)
        self._starts, self._ends = starts[lists], ends[lists]
        self._slots = (starts + heads)[lists] + within * width
        nulls = self.data[self._starts + COUNT_SIZE + within // 8] >> (within % 8).astype(np.uint8) & np.uint8(1)
        self.valid = nulls ^ np.uint8(1) if nulls.any() else NO_BYTES

    def fields(self, column: Column, valid: UInt8s) -> Fields:
        """Return the fields of the elements, which are the only column."""
        kinds = field_kinds(column.data_type)
        found = Fields(*self.read(self._slot_kind, self._what, valid, self._ends, self._slots.copy()))
        if kinds == (BYTES,):
            return self._bytes(valid, found.large)
        if len(kinds) == 1:
            return found
        self.refuse_any(found.large < 0, self._what)
        _, milliseconds = self.read(FIXED64, self._what, valid, self._ends, self._starts + (found.large >> 32))
        return Fields(NO_INT32S, milliseconds, found.large.astype(np.int32))

    def _bytes(self, valid: UInt8s, slots: Int64s) -> Fields:
        """Return the bytes to which the slots point, or which they hold: up to seven bytes before their number."""
        near = slots < 0
        lengths = np.where(near, slots >> 56 & 0x7F, slots & _LOW_32_BITS)
        positions = np.where(near, self._slots, self._starts + (slots >> 32))
        bad = (near & (lengths > MAX_IN_SLOT)) | (positions + lengths > self._ends)
        self.refuse_any(where(valid, bad), self._what)
        if lengths.sum() > self.data.size:
            # If parts overlap, a few bytes could become more values than memory can hold.
            self.refuse(0, self._what)
        return Fields(lengths.astype(np.int32), positions)


def where(valid: UInt8s, flags: Flags) -> Flags:
    """Return the flags of the valid values, which are all values if `valid` is empty."""
    return flags & (valid != 0) if valid.size else flags


def column_of(source: Source, column: Column, valid: UInt8s) -> pa.Array:
    """Return the next column of a source.

    Args:
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
