"""Conversions between the rows of a primary-key table and the values as which they are stored.

A value is the id of the schema as a little-endian i16 and then Fluss's compacted row (`ValueEncoder`,
`CompactedRowWriter`). A tag may be in front of it (`value_layout`). The row begins with a bit for each column, in whole
bytes from the lowest bit on. The bit is set if the column is null. The fields of the other columns follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_tiering.formats.buffers import byte_strings
from fluss_tiering.formats.compacted.reading import Rows, column_of
from fluss_tiering.formats.compacted.value_layout import PLAIN, ValueLayout
from fluss_tiering.formats.compacted.writing import as_binary_array, write_nullable_rows
from fluss_tiering.formats.schema import arrow_schema, no_columns
from fluss_tiering.formats.stored_schemas import StoredSchemas
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column

_SCHEMA_ID_SIZE: Final = 2


def encode_values(records: pa.RecordBatch, columns: Sequence[Column], schema_id: int) -> pa.BinaryArray:
    """Return the stored value of each row, in the layout PLAIN.

    Args:
        records: The rows, in the Arrow schema of the table.
        schema_id: The id of the table's schema.

    Raises:
        FlussTieringError: INVALID_ROWS if a NOT NULL column has a null, or if the values take more bytes than an Arrow
            array can hold.
    """
    for column, array in zip(columns, records.columns, strict=True):
        if array.null_count and not column.data_type.nullable:
            raise FlussTieringError(
                ErrorCode.INVALID_ROWS, f"column {column.name!r} is null in a row: expected {column.data_type}"
            )
    data_types = [column.data_type for column in columns]
    prefix = schema_id.to_bytes(_SCHEMA_ID_SIZE, "little")
    return as_binary_array(*write_nullable_rows(records.columns, data_types, records.num_rows, prefix))


def decode_values(
    values: pa.BinaryArray,
    columns: Sequence[Column],
    schema_id: int,
    included: Sequence[int] | None = None,
    *,
    layout: ValueLayout = PLAIN,
) -> pa.RecordBatch:
    """Return the rows of stored values, in the Arrow schema of the table.

    Args:
        values: The values. The array may be a slice.
        schema_id: The schema id that each value must have.
        included: The indexes of the columns to decode, ascending, or None for all columns. Columns between them are
            skipped, and columns after the last one are not read.
        layout: The layout of the values. Tags are skipped.

    Raises:
        FlussTieringError: CORRUPT_DATA if a value is not a row of this table. The message names the first such value,
            counted from 0.
    """

    def refuse(row: int, what: str) -> NoReturn:
        raise FlussTieringError(ErrorCode.CORRUPT_DATA, f"the stored value {row} of {len(values)} {what}")

    values.validate(full=True)
    offsets, data = byte_strings(values)
    starts, ends = offsets[:-1].astype(np.int64), offsets[1:].astype(np.int64)
    rows = Rows(data, starts + layout.row_at, ends, columns=len(columns), refuse=refuse)
    id_at = starts + layout.schema_id_at
    ids = data[id_at] | data[id_at + 1].astype(np.uint16) << 8
    rows.refuse_any(ids != schema_id, f"has another schema id than {schema_id}")
    validities = rows.validities(columns, strict=True)
    if included is None:
        arrays = [column_of(rows, column, valid) for column, valid in zip(columns, validities, strict=True)]
        rows.check_ends()
        return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns))
    if not included:
        return no_columns(len(values))
    arrays = []
    for index, (column, valid) in enumerate(zip(columns[: included[-1] + 1], validities, strict=False)):
        if index in included:
            arrays.append(column_of(rows, column, valid))
        else:
            rows.fields(column, valid)
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema([columns[index] for index in included]))


def decode_stored(values: pa.BinaryArray, schemas: StoredSchemas, layout: ValueLayout = PLAIN) -> pa.RecordBatch:
    """Decode values of any schemas to rows, in their order and with the wanted ones of the table's present columns.

    Raises:
        FlussTieringError: CORRUPT_DATA if a value is no row; INVALID_TABLE as in `StoredSchemas.columns`.
    """
    ids = schema_ids(values, layout)
    different = np.unique(ids).tolist() or [schemas.present_id]
    if len(different) == 1:
        return _decode(values, schemas, different[0], layout)
    parts, places = [], []
    for schema_id in different:
        where = np.flatnonzero(ids == schema_id)
        parts.append(_decode(values.take(pa.array(where)), schemas, schema_id, layout))
        places.append(where)
    order = np.argsort(np.concatenate(places), kind="stable")
    return pa.concat_batches(parts).take(pa.array(order))


def _decode(values: pa.BinaryArray, schemas: StoredSchemas, schema_id: int, layout: ValueLayout) -> pa.RecordBatch:
    included = schemas.included(schema_id)
    rows = decode_values(values, schemas.columns(schema_id), schema_id, included, layout=layout)
    return schemas.to_present(rows, schema_id)


def schema_ids(values: pa.BinaryArray, layout: ValueLayout) -> npt.NDArray[np.int16]:
    """Return the id of the schema of each value.

    Raises:
        FlussTieringError: CORRUPT_DATA if a value is too short.
    """
    offsets, data = byte_strings(values)
    starts = offsets[:-1].astype(np.int64) + layout.schema_id_at
    short = np.flatnonzero(np.diff(offsets) < layout.row_at)
    if short.size:
        raise FlussTieringError(
            ErrorCode.CORRUPT_DATA, f"the stored value {short[0]} of {len(values)} ends before its schema id"
        )
    ids: npt.NDArray[np.int16] = (data[starts] | data[starts + 1].astype(np.uint16) << 8).astype(np.int16)
    return ids
