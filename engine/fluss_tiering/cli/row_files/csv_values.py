"""Check what pyarrow's reader of CSV takes, although the column of the table cannot hold it."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from fluss_tiering.cli.row_files.csv_errors import WrongValueError
from fluss_tiering.model.table import Column, DataTypeRoot


def check_values(rows: pa.RecordBatch, columns: Sequence[Column]) -> None:
    """Check the values of a batch whose columns have the Arrow types of the table.

    Raises:
        WrongValueError: A value is null in a column that is NOT NULL, a decimal has more digits than its type, or a
            text is longer than its CHAR.
    """
    for column in columns:
        position = rows.schema.get_field_index(column.name)
        if position < 0:
            continue
        values, kind = rows.column(position), column.data_type
        if not kind.nullable and values.null_count:
            raise WrongValueError(_first(pc.is_null(values)), column.name, None)
        if kind.root is DataTypeRoot.CHAR:
            _refuse_first(pc.greater(pc.utf8_length(values), kind.length), column.name, values)
        if kind.root is DataTypeRoot.DECIMAL:
            # The reader checks only that a number fits into 128 bits.
            largest = pa.scalar(Decimal((0, (9,) * kind.precision, -kind.scale)), values.type)
            _refuse_first(pc.greater(pc.abs(values), largest), column.name, values)


def _refuse_first(wrong: pa.BooleanArray, name: str, values: pa.Array) -> None:
    row = _first(wrong)
    if row >= 0:
        raise WrongValueError(row, name, str(values[row].as_py()))


def _first(found: pa.BooleanArray) -> int:
    return int(pc.index(found, True).as_py())
