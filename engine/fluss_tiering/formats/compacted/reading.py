"""Where the fields of compacted rows and the elements of arrays in them lie, found on whole columns at a time.

No byte outside of a row or an array is ever looked at. An array (Fluss's `BinaryArray`) is its count, bits for nulls in
whole groups of 32, a slot of fixed width for each element, and behind them what does not fit into a slot of eight
bytes: the slot then has its place and length.
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
    """What stands for the values of a column; 0 where these are null.

    Attributes:
        small: numbers of up to 32 bits, the lengths of bytes.
        large: numbers of up to 64 bits, the positions of bytes, the milliseconds of timestamps.
        nanoseconds: in the milliseconds, for timestamps that have any.
    """

    small: Int32s
    large: Int64s
    nanoseconds: Int32s | None = None


class Source(ABC):
    """Values that lie in some bytes, as many of them for each column.

    Attributes:
        data: what positions point into.
        count: of the values of a column.
        refuse: says of a value, counted from 0, and why, that what it is part of is corrupt.
    """

    def __init__(self, data: UInt8s, count: int, refuse: Refuse) -> None:
        self.data = data
        self.count = count
        self.refuse = refuse

    @abstractmethod
    def fields(self, column: Column, valid: UInt8s) -> Fields:
        """Where the values of a column are; nothing is read where `valid`, unless it is empty, is 0."""

    def refuse_any(self, bad: Flags, what: str) -> None:
        """Refuses the first that is bad."""
        if bad.any():
            self.refuse(int(bad.argmax()), what)

    def read(self, kind: int, what: str, valid: UInt8s, ends: Int64s, cursor: Int64s) -> tuple[Int32s, Int64s]:
        """What `read_field` reads of each value, 0 where it is null; refuses as `what` one that is not there."""
        out32 = NO_INT32S if kind in {VARINT64, FIXED64} else np.zeros(self.count, np.int32)
        out64 = np.zeros(self.count, np.int64) if kind in {VARINT64, FIXED64, BYTES} else NO_INT64S
        bad = read_field(kind, valid, self.data, ends, cursor, out32, out64)
        if bad != ALL_GOOD:
            self.refuse(bad, what)
        return out32, out64


class Rows(Source):
    """Compacted rows, read field by field.

    Args:
        data, refuse: as the attributes.
        starts, ends: of each row.
        columns: how many a row has.
        place: of the rows in the values that `refuse` names, with a space behind it.
        present: 0 where there is no row; empty when there nowhere is none.
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
        """For each column 1 where it has a value and 0 where it is null; empty when it nowhere is.

        Args:
            columns: of the rows.
            strict: whether a null in a NOT NULL column is refused.
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
        """The next field of each row."""
        what = f"does not hold a {column.data_type.root} where column {column.name!r} is"
        first, *rest = field_kinds(column.data_type)
        found = Fields(*self.read(first, what, valid, self._ends, self._cursor))
        for kind in rest:
            found = found._replace(nanoseconds=self.read(kind, what, valid, self._ends, self._cursor)[0])
        return found

    def check_ends(self) -> None:
        """Refuses rows that have more than the fields that were read."""
        self.refuse_any(
            where(self._present, self._cursor != self._ends), f"{self._place}goes on behind its last column"
        )

    def _bits(self, byte: int) -> UInt8s:
        """A byte of each row's null bits; all of them set where there is no row."""
        if not self._present.size:
            return self.data[self._null_bits + byte]
        bits = np.full(self.count, 0xFF, np.uint8)
        there = np.flatnonzero(self._present)
        bits[there] = self.data[self._null_bits[there] + byte]
        return bits


class Elements(Source):
    """The elements of arrays, one behind the other.

    Args:
        arrays: what the arrays are values of.
        starts, ends: of each array.
        present: 0 where there is no array; empty when there nowhere is none.
        column: whose values the arrays are, or are in.
        element: the type of the elements.

    Attributes:
        counts: of the elements of each array; 0 where there is no array.
        valid: 0 where an element is null; empty when it nowhere is.
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
        self._what = f"does not hold a {column.data_type.root} where column {column.name!r} is"
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
        """The elements, of which there is one column."""
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
        """What the slots point to, or have in them: up to seven bytes below their number."""
        near = slots < 0
        lengths = np.where(near, slots >> 56 & 0x7F, slots & _LOW_32_BITS)
        positions = np.where(near, self._slots, self._starts + (slots >> 32))
        bad = (near & (lengths > MAX_IN_SLOT)) | (positions + lengths > self._ends)
        self.refuse_any(where(valid, bad), self._what)
        if lengths.sum() > self.data.size:
            # Parts that overlap could make more of a few bytes than memory holds.
            self.refuse(0, self._what)
        return Fields(lengths.astype(np.int32), positions)


def where(valid: UInt8s, flags: Flags) -> Flags:
    """The flags of what is valid; all where nothing is null."""
    return flags & (valid != 0) if valid.size else flags
