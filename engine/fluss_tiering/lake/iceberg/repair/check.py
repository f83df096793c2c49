"""The executor's side: it compares the bounds of a file with its values, and its physical types with Iceberg's spec.

The footer of a Parquet file says the extreme values of most row groups. Only where it says none, the column is read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from fluss_tiering.lake.damaged_parquet import MISSING, damage_of, naming_damage, open_parquet, unreadable_file
from fluss_tiering.lake.iceberg.deletes.puffin import read_vectors
from fluss_tiering.lake.iceberg.metrics.bounds import RawValue, decoded, encoded
from fluss_tiering.lake.iceberg.metrics.collector import Leaf, leaves_of
from fluss_tiering.lake.iceberg.metrics.modes import TRUNCATED, MetricsMode
from fluss_tiering.lake.object_store import filesystem_of, path_of
from fluss_tiering.lake.protocol import FileContent
from fluss_tiering.model.errors import FlussTieringError

PARQUET: Final = "PARQUET"
_PUFFIN: Final = "PUFFIN"
_KINDS: Final = {
    FileContent.DATA: "data file",
    FileContent.EQUALITY_DELETES: "equality delete file",
    FileContent.POSITION_DELETES: "position delete file",
}
Bounds = Mapping[int, bytes]
Extremes = tuple[RawValue, RawValue]
_MAX_INTEGER_DIGITS: Final = 18
"""Iceberg's spec wants decimals of up to 18 digits as integers."""
_BATCH_ROWS: Final = 1024
_LONGEST_BOUND: Final = 1024


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file as a manifest lists it.

    Attributes:
        location: The location of the file.
        lower_bounds: The lower bounds by field id, in Iceberg's binary form.
        upper_bounds: The upper bounds by field id, in Iceberg's binary form.
        content: What the file holds.
        format: The format of the file, in capitals.
        size_bytes: The size of the file; None if it is not known.
        rows: The number of its rows; None if it is not known.
    """

    location: str
    lower_bounds: Bounds = field(repr=False)
    upper_bounds: Bounds = field(repr=False)
    content: FileContent = FileContent.DATA
    format: str = PARQUET
    size_bytes: int | None = None
    rows: int | None = None

    @property
    def is_checked(self) -> bool:
        """Whether bounds and types are looked at: only those of files with columns of the table matter to readers."""
        return self.content is not FileContent.POSITION_DELETES and self.format == PARQUET


@dataclass(frozen=True, slots=True)
class WrongFile:
    """A file that readers may skip wrongly, or may fail to read.

    Attributes:
        location: The location of the file.
        narrow_bounds: The names of the columns that have values beyond their bounds.
        wrong_types: The names of the columns that are stored as another physical type than Iceberg's spec says.
        right_bounds: The right lower and upper bound of each column in `narrow_bounds`, by field id.
    """

    location: str
    narrow_bounds: tuple[str, ...]
    wrong_types: tuple[str, ...]
    right_bounds: Mapping[int, tuple[bytes | None, bytes | None]] = field(repr=False)


@dataclass(frozen=True, slots=True)
class FileChecker:
    """Checks files of one table. It is pickled, and called on executors.

    Attributes:
        modes: How bounds are cut, by field id.
        io_properties: The lake catalog's properties, for object stores.
    """

    modes: Mapping[int, MetricsMode]
    io_properties: Mapping[str, str] = field(repr=False)

    def __call__(self, file: ListedFile) -> WrongFile | None:
        """Return what is wrong with a file; None if nothing is.

        Raises:
            FlussTieringError: CORRUPT_DATA if the file is missing or damaged.
            OSError: If its store fails.
        """
        filesystem = filesystem_of(file.location, self.io_properties)
        if not file.is_checked:
            _check_size(filesystem, file)
            return None
        with naming_damage(filesystem, file.location, lambda what: _unreadable(file, what)):
            return self._check(filesystem, file)

    def damage(self, file: ListedFile) -> str | None:
        """Return what is wrong with a file that is missing or cannot be read to its end; None if its store fails.

        Files of other formats than Parquet and Puffin are only looked for.
        """
        try:
            self(file)
            if file.format == _PUFFIN:
                self._read_puffin(file)
        except FlussTieringError as error:
            return error.message
        except OSError:
            # What failed before says why.
            return None
        if file.format != PARQUET:
            return None
        what = damage_of(filesystem_of(file.location, self.io_properties), file.location)
        return None if what is None else _unreadable(file, what).message

    def _read_puffin(self, file: ListedFile) -> None:
        with filesystem_of(file.location, self.io_properties).open_input_file(path_of(file.location)) as source:
            content = bytes(source.read())
        try:
            read_vectors(content)
        except ValueError as error:
            raise _unreadable(file, f"is damaged: {error}") from None

    def _check(self, filesystem: fs.FileSystem, file: ListedFile) -> WrongFile | None:
        with filesystem.open_input_file(path_of(file.location)) as source:
            # Bounds of another file than the table's would be taken for right ones.
            _compare_size(file, source.size())
            parquet = open_parquet(source)
            if file.rows not in (None, parquet.metadata.num_rows):
                raise _unreadable(file, f"is damaged: it has {parquet.metadata.num_rows} rows instead of {file.rows}")
            leaves = leaves_of(parquet.schema_arrow)
            right = dict(self._narrow(file, parquet, leaves))
            types = tuple(_badly_typed(parquet.schema))
        if not right and not types:
            return None
        names = {leaf.field_id: leaf.name for leaf in leaves}
        return WrongFile(file.location, tuple(names[each] for each in right), types, right)

    def _narrow(
        self, file: ListedFile, parquet: pq.ParquetFile, leaves: list[Leaf]
    ) -> Iterator[tuple[int, tuple[bytes | None, bytes | None]]]:
        """Yield the id and the right bounds of each column with values beyond its bounds."""
        for column, leaf in enumerate(leaves):
            lower, upper = file.lower_bounds.get(leaf.field_id), file.upper_bounds.get(leaf.field_id)
            if leaf.repeated or (lower is None and upper is None):
                continue
            extremes = _extremes(parquet, column, leaf)
            if extremes is None or _contain(leaf.kind, lower, upper, extremes):
                continue
            length = self.modes.get(leaf.field_id, TRUNCATED).length
            length = _LONGEST_BOUND if length is None else min(length, _LONGEST_BOUND)
            low, high = extremes
            yield (
                leaf.field_id,
                (
                    encoded(leaf.kind, low, upper=False, length=length),
                    encoded(leaf.kind, high, upper=True, length=length),
                ),
            )


def _unreadable(file: ListedFile, what: str) -> FlussTieringError:
    form = file.format if file.format == "ORC" else file.format.capitalize()
    return unreadable_file(file.location, what, _KINDS[file.content], form)


def _check_size(filesystem: fs.FileSystem, file: ListedFile) -> None:
    found = filesystem.get_file_info(path_of(file.location))
    if found.type is not fs.FileType.File:
        raise _unreadable(file, MISSING)
    _compare_size(file, found.size)


def _compare_size(file: ListedFile, size: int) -> None:
    if file.size_bytes not in (None, size):
        raise _unreadable(file, f"is damaged: it has {size} bytes instead of {file.size_bytes}")


def _contain(kind: pa.DataType, lower: bytes | None, upper: bytes | None, extremes: Extremes) -> bool:
    """Return whether the bounds contain the extreme values. A bound that cannot be read contains nothing."""
    low: Any = extremes[0]
    high: Any = extremes[1]
    try:
        return (lower is None or decoded(kind, lower) <= low) and (upper is None or decoded(kind, upper) >= high)
    except struct.error:
        return False


def _extremes(parquet: pq.ParquetFile, column: int, leaf: Leaf) -> Extremes | None:
    """Return the smallest and the largest value of a column in the whole file; None if it has no values."""
    found: list[Extremes] = []
    for group in range(parquet.metadata.num_row_groups):
        chunk = parquet.metadata.row_group(group).column(column)
        statistics = chunk.statistics
        if statistics is not None and statistics.has_min_max:
            found.append((_raw(leaf.kind, statistics.min_raw), _raw(leaf.kind, statistics.max_raw)))
        elif statistics is None or not statistics.has_null_count or statistics.null_count < chunk.num_values:
            found.extend(_read_extremes(parquet, group, chunk.path_in_schema, leaf))
    if not found:
        return None
    lows: list[Any] = [low for low, _ in found]
    highs: list[Any] = [high for _, high in found]
    return min(lows), max(highs)


def _read_extremes(parquet: pq.ParquetFile, group: int, path: str, leaf: Leaf) -> Iterator[Extremes]:
    """Yield the smallest and the largest value of each part of a row group."""
    for batch in parquet.iter_batches(_BATCH_ROWS, row_groups=[group], columns=[path]):
        # The path `a` also selects a column with the name `a.b`.
        field = parquet.schema_arrow.field(leaf.path[0])
        values = batch.column(field.name)
        for position in leaf.path[1:]:
            field = field.type.field(position)
            values = pc.struct_field(values, field.name)
        values = values.drop_null()
        if pa.types.is_floating(leaf.kind):
            values = values.filter(pc.invert(pc.is_nan(values)))
        if len(values):
            extremes = pc.min_max(values)
            yield _value(leaf.kind, extremes["min"]), _value(leaf.kind, extremes["max"])


def _value(kind: pa.DataType, scalar: pa.Scalar) -> RawValue:
    """Return a value as Parquet's statistics have it, and a decimal as its unscaled number."""
    one = pa.array([scalar.as_py()], kind) if pa.types.is_decimal(kind) else pa.repeat(scalar, 1)
    if pa.types.is_decimal(kind):
        return int.from_bytes(one.buffers()[1].to_pybytes()[: kind.byte_width], "little", signed=True)
    if pa.types.is_temporal(kind):
        one = one.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    value = one[0].as_py()
    raw: RawValue = value.encode() if isinstance(value, str) else value
    return raw


def _raw(kind: pa.DataType, value: RawValue) -> RawValue:
    return (
        int.from_bytes(value, "big", signed=True) if pa.types.is_decimal(kind) and isinstance(value, bytes) else value
    )


def _badly_typed(schema: pq.ParquetSchema) -> Iterator[str]:
    for number in range(len(schema)):
        column = schema.column(number)
        kind = column.logical_type
        is_short = kind.type == "DECIMAL" and column.precision <= _MAX_INTEGER_DIGITS
        if is_short and column.physical_type not in {"INT32", "INT64"}:
            yield column.path
