"""The executor's side of a rewrite: it reads the rows of a data file, whoever has written it, in the table's schema."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from fluss_tiering.formats.micros import column_of
from fluss_tiering.lake.damaged_parquet import naming_damage, open_parquet, unreadable_file
from fluss_tiering.lake.files import LiveDataFile
from fluss_tiering.lake.iceberg.deletes.vector import DeletionVector
from fluss_tiering.lake.iceberg.field_ids import FIELD_ID, id_of, parts_of
from fluss_tiering.lake.object_store import path_of
from fluss_tiering.model.table import OFFSET_COLUMN

_BATCH_ROWS: Final = 1 << 16
_BATCH_BYTES: Final = 8 << 20
_UNKNOWN_OFFSET: Final = -1
LINEAGE: Final = pa.schema(
    [
        pa.field("_row_id", pa.int64(), metadata={FIELD_ID: "2147483540"}),
        pa.field("_last_updated_sequence_number", pa.int64(), metadata={FIELD_ID: "2147483539"}),
    ]
)
"""The columns for the lineage of rows, as Iceberg's spec reserves them in the format version 3."""


@dataclass(frozen=True, slots=True)
class Lineage:
    """The lineage of those rows of a data file for which the file itself does not have it.

    Attributes:
        first_row_id: The id of the row at the position 0. Each further row has the next id.
        sequence_number: The data sequence number of the file, of the commit that wrote these rows.
    """

    first_row_id: int
    sequence_number: int


class UnknownLayoutError(Exception):
    """The columns of a data file cannot be matched with those of the table. Iceberg's own readers may know how."""


def read_rows(
    filesystem: fs.FileSystem,
    file: LiveDataFile,
    schema: pa.Schema,
    deleted: DeletionVector,
    lineage: Lineage | None = None,
) -> Iterator[Sequence[pa.Array]]:
    """Yield the rows of a data file that are not deleted, in their order, batch by batch.

    Args:
        filesystem: The file system of the lake.
        schema: The columns that are wanted, with Iceberg's field ids. A column that the file lacks is null.
        deleted: The positions of the deleted rows.
        lineage: What rows have in the columns of `LINEAGE` if the file says nothing; None if they are not wanted.

    Returns:
        The columns in the order of the schema, and then those of `LINEAGE` if they are wanted. Their types may be
        narrower than those of the schema. The parts of nested columns have the names of the schema.

    Raises:
        UnknownLayoutError: if the columns of the file have no ids, or other ones.
        FlussTieringError: CORRUPT_DATA if the file is missing or damaged, or has another number of rows than the
            metadata says, or lacks a column that is never null.
    """
    positions = deleted.positions()
    with _opened(filesystem, file) as parquet:
        schema = schema if lineage is None else pa.schema([*schema, *LINEAGE])
        found = _columns(parquet.schema_arrow, schema, file.location)
        wanted = [name for name, _ in found if name is not None]
        first = 0
        for batch in parquet.iter_batches(_batch_rows(parquet.metadata), columns=wanted):
            columns = [
                pa.nulls(batch.num_rows, kind) if name is None else _with_names(batch.column(name), kind)
                for name, kind in found
            ]
            if lineage is not None:
                columns[-len(LINEAGE) :] = _with_lineage(columns[-len(LINEAGE) :], lineage, first)
            start, end = np.searchsorted(positions, [first, first + batch.num_rows])
            if start < end:
                kept = np.ones(batch.num_rows, np.uint8)
                kept[positions[start:end] - first] = 0
                mask = column_of(pa.uint8(), kept).cast(pa.bool_())
                columns = [pc.filter(column, mask) for column in columns]
            first += batch.num_rows
            yield columns


def _with_lineage(columns: Sequence[pa.Array], lineage: Lineage, first: int) -> list[pa.Array]:
    """Return the columns of `LINEAGE` of some rows, of which the first one has this position, without nulls."""
    row_ids, sequence_numbers = columns
    own = column_of(pa.int64(), np.arange(len(row_ids)) + (lineage.first_row_id + first))
    return [
        pc.if_else(pc.is_valid(row_ids), row_ids, own),
        pc.fill_null(sequence_numbers, lineage.sequence_number),
    ]


def first_offset(filesystem: fs.FileSystem, file: LiveDataFile) -> int:
    """Return the smallest log offset in a data file, as its footer says it; -1 if it says none.

    Raises:
        FlussTieringError: CORRUPT_DATA if the file is missing or damaged.
    """
    with _opened(filesystem, file) as parquet:
        leaves = [parquet.schema.column(number).path for number in range(len(parquet.schema))]
        if OFFSET_COLUMN not in leaves:
            return _UNKNOWN_OFFSET
        leaf = leaves.index(OFFSET_COLUMN)
        groups = [parquet.metadata.row_group(number) for number in range(parquet.metadata.num_row_groups)]
        bounds = [group.column(leaf).statistics for group in groups]
        known = [int(each.min) for each in bounds if each is not None and each.has_min_max]
        return min(known, default=_UNKNOWN_OFFSET)


@contextmanager
def _opened(filesystem: fs.FileSystem, file: LiveDataFile) -> Iterator[pq.ParquetFile]:
    # A store answers a few large requests sooner than one for each column.
    remote = not isinstance(filesystem, fs.LocalFileSystem)
    with (
        naming_damage(filesystem, file.location, lambda what: unreadable_file(file.location, what)),
        filesystem.open_input_file(path_of(file.location)) as source,
        open_parquet(source, pre_buffer=remote) as parquet,
    ):
        if parquet.metadata.num_rows != file.rows:
            raise unreadable_file(
                file.location, f"has {parquet.metadata.num_rows} rows, and the lake table says {file.rows}"
            )
        yield parquet


def _batch_rows(metadata: pq.FileMetaData) -> int:
    """Return how many rows take a few megabytes in the row group whose rows are the largest."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    widest = max([1, *(group.total_byte_size / group.num_rows for group in groups if group.num_rows)])
    return max(1, min(_BATCH_ROWS, int(_BATCH_BYTES / widest)))


def _columns(found: pa.Schema, wanted: pa.Schema, location: str) -> list[tuple[str | None, pa.DataType]]:
    """Return the file's name of each wanted column, None for a column that it lacks; and the type that is wanted."""
    by_id = {id_of(field): field for field in found}
    if None in by_id or len(by_id) < len(found):
        raise UnknownLayoutError(f"the data file {location} has columns without ids")
    columns: list[tuple[str | None, pa.DataType]] = []
    for field in wanted:
        own = by_id.get(id_of(field))
        if own is None and not field.nullable:
            raise unreadable_file(location, f"lacks the column {field.name}, which is never null")
        if own is not None and _ids_below(own.type) != _ids_below(field.type):
            raise UnknownLayoutError(f"the column {own.name} of the data file {location} has other parts")
        columns.append((None if own is None else own.name, field.type))
    return columns


def _with_names(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return a column whose nested parts have the names of another type, which has the same parts in the same order.

    Iceberg's own writers change names with characters that Avro does not allow: `first-name` becomes `first_x2Dname`.
    Arrow's casts take a part with another name for a missing one, which is null.
    """
    named = _named(column.type, wanted)
    return column if named == column.type else column.view(named)


def _named(own: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    parts = [
        part.with_name(other.name).with_type(_named(part.type, other.type))
        for part, other in zip(parts_of(own), parts_of(wanted), strict=True)
    ]
    if pa.types.is_struct(own):
        return pa.struct(parts)
    if pa.types.is_map(own):
        return pa.map_(*parts)
    if pa.types.is_list(own):
        return pa.list_(*parts)
    return pa.large_list(*parts) if pa.types.is_large_list(own) else own


def _ids_below(kind: pa.DataType) -> list[object]:
    """Return the ids of all parts of a type, in their order."""
    return [(id_of(part), _ids_below(part.type)) for part in parts_of(kind)]
