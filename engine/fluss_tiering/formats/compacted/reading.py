"""The places of the fields in compacted rows, and of the elements in their arrays, for whole columns at a time.

No byte outside of a row or an array is ever read. An array (Fluss's `BinaryArray`) begins with its count, null bits in
whole groups of 32, and a slot of fixed width for each element. Elements that do not fit into a slot of eight bytes come
after the slots. The slot then has the place and the length of the element.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from fluss_tiering.formats.buffers import NO_BYTES, NO_INT32S, NO_INT64S
from fluss_tiering.formats.compacted.fields import (
    COUNT_SIZE,
    MAX_IN_SLOT,
    array_heads,
    element_slot,
    field_kinds,
    null_bytes,
)
from fluss_tiering.formats.compacted.kernels import BYTES, FIXED32, FIXED64, VARINT64, read_field
from fluss_tiering.formats.compiled import ALL_GOOD, Int32s, Int64s, UInt8s
from fluss_tiering.model.data_type import DataType
from fluss_tiering.model.table import Column

Refuse = Callable[[int, str], NoReturn]
Flags = npt.NDArray[np.bool_]
_LOW_32_BITS: Final = 0xFFFFFFFF


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
        columns: The number of columns.
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
            columns: The columns of the rows.
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
        element: The type of the elements.

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
