"""Decoding stored values of a bucket, which may have been stored under several schemas of the table."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_tiering.formats.buffers import byte_strings
from fluss_tiering.formats.compacted.row import decode_values
from fluss_tiering.formats.compacted.value_layout import ValueLayout
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.storage.fluss.reading.schema_history import SchemaHistory


def decode_stored(values: pa.BinaryArray, schemas: SchemaHistory, layout: ValueLayout) -> pa.RecordBatch:
    """Decode values to rows, in their order and with the wanted ones of the table's present columns.

    Raises:
        FlussTieringError: CORRUPT_DATA if a value is no row; INVALID_TABLE as in `SchemaHistory.columns`.
    """
    ids = schema_ids(values, layout)
    different = np.unique(ids).tolist()
    if len(different) == 1:
        return _decode(values, schemas, different[0], layout)
    parts, places = [], []
    for schema_id in different:
        where = np.flatnonzero(ids == schema_id)
        parts.append(_decode(values.take(pa.array(where)), schemas, schema_id, layout))
        places.append(where)
    order = np.argsort(np.concatenate(places), kind="stable")
    return pa.concat_batches(parts).take(pa.array(order))


def _decode(values: pa.BinaryArray, schemas: SchemaHistory, schema_id: int, layout: ValueLayout) -> pa.RecordBatch:
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
