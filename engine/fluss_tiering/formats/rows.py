"""The check of written rows against their table. The rows that it returns have exactly the table's Arrow schema.

A column is cast only if the cast changes no value. Otherwise the rows are refused, and the error names the column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fluss_tiering.formats.ipc import MAX_ROWS_BYTES
from fluss_tiering.formats.nested_arrays import cast_parts, map_parts, size_as
from fluss_tiering.formats.schema import UNIT_PRECISION, arrow_schema, arrow_type, is_bytes, is_list, is_text
from fluss_tiering.model.data_type import NESTED, DataType, DataTypeRoot
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column

_ANY_INTEGER: Final = pa.decimal128(20, 0)
"""This type holds every 64-bit integer, signed or not. Arrow checks each value of a cast from it to other decimals."""
_MAX_MICROSECONDS: Final = 2**63 - 1
_MAX_TIME_DIGITS: Final = 3
_LEAST_BYTES: Final = 8
"""What each row takes at least, however few columns it has."""


def conform(rows: pa.Table, columns: Sequence[Column], key: Sequence[str] = ()) -> pa.Table:
    """Return the rows in exactly the Arrow schema and column order of a table with these columns.

    Args:
        rows: The rows, with the columns of the table in any order. They may come from an untrusted sender.
        columns: The columns of the table, or those of its key if only keys are sent.
        key: The names of the columns that must not be null, whatever their types say.

    Raises:
        FlussTieringError: INVALID_ROWS if a column is missing, unknown or repeated, if its type does not fit, if a cast
            would change a value, if a NOT NULL column or the key has a null, or if the rows would take more than
            `MAX_ROWS_BYTES`. The message names the column, what it is and what was expected.
    """
    _check_names(rows.schema.names, columns)
    try:
        rows.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        _refuse(f"the rows are damaged ({_first_line(error)}): expected valid Arrow data", error)
    _check_size(rows, columns)
    arrays = []
    for column in columns:
        values = _cast(rows.column(column.name), column)
        _check_nulls(values, column, in_key=column.name in key)
        arrays.append(values)
    return pa.Table.from_arrays(arrays, schema=arrow_schema(columns))


def _check_size(rows: pa.Table, columns: Sequence[Column]) -> None:
    """Refuse rows that grow when they are cast. A few bytes can stand for any number of nulls."""
    taken = rows.num_rows * _LEAST_BYTES
    for column in columns:
        kind = arrow_type(column.data_type)
        try:
            taken += sum(size_as(chunk, kind) for chunk in rows.column(column.name).chunks)
        except pa.ArrowException as error:
            _refuse(f"column {column.name!r} is damaged ({_first_line(error)}): expected valid Arrow data", error)
        if taken > MAX_ROWS_BYTES:
            _refuse(
                f"the {rows.num_rows} rows would take more than {MAX_ROWS_BYTES} bytes in the types of the table, "
                "which is the limit: write fewer rows at once"
            )


def _check_names(names: Sequence[str], columns: Sequence[Column]) -> None:
    expected = [column.name for column in columns]
    listed = ", ".join(expected)
    for name in names:
        if name not in expected:
            _refuse(f"the table has no column {name!r}: expected the columns {listed}")
        if names.count(name) > 1:
            _refuse(f"the rows have the column {name!r} twice: expected the columns {listed}")
    for name in expected:
        if name not in names:
            _refuse(f"the rows have no column {name!r}: expected the columns {listed}")


def _check_nulls(values: pa.ChunkedArray, column: Column, *, in_key: bool) -> None:
    if values.null_count == 0 or (column.data_type.nullable and not in_key):
        return
    row = pc.index(pc.is_null(values), True).as_py()
    rule = "is part of the key" if in_key else f"is {column.data_type}"
    _refuse(f"column {column.name!r} is null in row {row}: expected a value, since the column {rule}")


def _cast(values: pa.ChunkedArray, column: Column) -> pa.ChunkedArray:
    root = column.data_type.root
    target = arrow_type(column.data_type)
    offered = values.type
    _check_scale(offered.value_type if pa.types.is_dictionary(offered) else offered, column)
    try:
        if pa.types.is_dictionary(offered):
            values = values.cast(offered.value_type)
        if not pa.types.is_null(values.type):
            if not accepts(root, values.type):
                _refuse(f"column {column.name!r} is {offered}: expected {column.data_type}, which is {target} in Arrow")
            if root is DataTypeRoot.DECIMAL and pa.types.is_integer(values.type):
                values = values.cast(_ANY_INTEGER)
            elif root is DataTypeRoot.TIMESTAMP_LTZ and values.type.tz is not None:
                values = _without_zone(values)
            elif root in NESTED:
                _check_parts(values.type, column)
            elif root is DataTypeRoot.FLOAT:
                _check_single_precision(values, column)
        if root in NESTED:
            values = pa.chunked_array([cast_parts(chunk, target, pc.cast) for chunk in values.chunks], target)
        else:
            values = values.cast(target)
    except pa.ArrowException as error:
        reason = _first_line(error)
        _refuse(
            f"column {column.name!r} is {offered} with a value that {column.data_type} cannot hold: {reason}", error
        )
    _check_values(values, column)
    return values


def _check_values(values: pa.ChunkedArray, column: Column) -> None:
    """Refuse values that the Arrow type allows and the type of the column does not."""
    root = column.data_type.root
    if root in {DataTypeRoot.TIMESTAMP, DataTypeRoot.TIMESTAMP_LTZ}:
        _check_timestamps(values, column)
    elif root is DataTypeRoot.TIME:
        _check_times(values, column)
    elif root is DataTypeRoot.CHAR:
        _check_characters(values, column)
    elif root in NESTED:
        for part, name in zip(_parts(values), column.data_type.fields, strict=True):
            inner = Column(f"{column.name}.{name.name}", name.data_type)
            _check_nulls(part, inner, in_key=False)
            _check_values(part, inner)


def _parts(values: pa.ChunkedArray) -> list[pa.ChunkedArray]:
    """Return the parts of the nested values that are not null."""
    present = values.drop_null()
    if pa.types.is_struct(values.type):
        return list(present.flatten())
    if pa.types.is_map(values.type):
        parts = [map_parts(chunk) for chunk in present.chunks]
        kinds = (values.type.key_type, values.type.item_type)
        return [pa.chunked_array([each[part] for each in parts], kind) for part, kind in enumerate(kinds, 1)]
    return [pa.chunked_array([chunk.flatten() for chunk in present.chunks], values.type.value_type)]


def _check_scale(offered: pa.DataType, column: Column) -> None:
    """Refuse a decimal with an invalid scale. Arrow's casts do not check it and would read outside of their tables."""
    if pa.types.is_decimal(offered) and not 0 <= offered.scale <= offered.precision:
        _refuse(
            f"column {column.name!r} is {offered}: expected a decimal with a scale from 0 to its precision, "
            f"since the column is {column.data_type}"
        )


def _check_parts(offered: pa.DataType, column: Column) -> None:
    """Refuse nested types that do not fit. Arrow's cast would round doubles, parse texts as numbers and omit fields."""
    if not fits(offered, column.data_type):
        _refuse(
            f"column {column.name!r} is {offered}: expected {column.data_type} with exactly these parts, each of a "
            "type that fits; a FLOAT takes single precision only, because a double would be rounded"
        )


def _check_single_precision(values: pa.ChunkedArray, column: Column) -> None:
    """Refuse doubles that no float equals. Arrow's cast would round them, or make infinities of large ones."""
    if pa.types.is_float64(values.type):
        doubles = pc.drop_null(values).to_numpy()
        with np.errstate(over="ignore"):
            singles = doubles.astype(np.float32)
        changed = (singles != doubles) & ~np.isnan(doubles)
        if changed.any():
            value = doubles[changed.argmax()]
            _refuse(
                f"column {column.name!r} is {values.type} with a value that {column.data_type} cannot hold: {value!r}"
            )


def _check_times(values: pa.ChunkedArray, column: Column) -> None:
    """Refuse times that are finer than the column. Fluss keeps milliseconds, whatever the unit in Arrow."""
    digits = min(column.data_type.precision, _MAX_TIME_DIGITS)
    step = 10 ** (UNIT_PRECISION[values.type.unit] - digits)
    if step == 1:
        return
    counts = values.cast(pa.int32() if values.type.bit_width == 32 else pa.int64())
    if np.any(pc.drop_null(counts).to_numpy() % step):
        _refuse(
            f"column {column.name!r} has a value with more than {digits} sub-second digits: expected "
            f"{column.data_type}"
            + (", of which Fluss keeps milliseconds" if column.data_type.precision > _MAX_TIME_DIGITS else "")
        )


def _check_characters(values: pa.ChunkedArray, column: Column) -> None:
    longest = pc.max(pc.utf8_length(values)).as_py() or 0
    if longest > column.data_type.length:
        _refuse(f"column {column.name!r} has a text of {longest} characters: expected {column.data_type}")


def _without_zone(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the same instants as counts from the epoch in UTC."""
    target = pa.timestamp(values.type.unit)
    return pa.chunked_array([chunk.view(target) for chunk in values.chunks], type=target)


def _check_timestamps(values: pa.ChunkedArray, column: Column) -> None:
    """Refuse timestamps that are finer than the column, or too large for the lake.

    Arrow's units are finer than some precisions. Its coarse units reach further than the microseconds of the lake.
    """
    digits = UNIT_PRECISION[values.type.unit]
    step = 10 ** (digits - column.data_type.precision)
    limit = _MAX_MICROSECONDS // 10 ** (6 - digits) if digits < 6 else None
    if step == 1 and limit is None:
        return
    for chunk in values.chunks:
        counts = pc.fill_null(chunk.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
        if np.any(counts % step):
            _refuse(
                f"column {column.name!r} has a value with more than {column.data_type.precision} sub-second digits: "
                f"expected {column.data_type}"
            )
        if limit is not None and np.any((counts > limit) | (counts < -limit)):
            _refuse(
                f"column {column.name!r} has a timestamp beyond what the lake can hold: "
                "expected a year from -290307 to 294247"
            )


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _refuse(message: str, cause: BaseException | None = None) -> NoReturn:
    raise FlussTieringError(ErrorCode.INVALID_ROWS, message) from cause


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _is_exact_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_decimal(kind))


def _is_timestamp_without_zone(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz is None)


_ACCEPTED: Final[dict[DataTypeRoot, Callable[[pa.DataType], bool]]] = {
    DataTypeRoot.BOOLEAN: pa.types.is_boolean,
    DataTypeRoot.TINYINT: _is_number,
    DataTypeRoot.SMALLINT: _is_number,
    DataTypeRoot.INT: _is_number,
    DataTypeRoot.BIGINT: _is_number,
    DataTypeRoot.FLOAT: _is_number,
    DataTypeRoot.DOUBLE: _is_number,
    DataTypeRoot.DECIMAL: _is_exact_number,
    DataTypeRoot.CHAR: is_text,
    DataTypeRoot.STRING: is_text,
    DataTypeRoot.BINARY: is_bytes,
    DataTypeRoot.BYTES: is_bytes,
    DataTypeRoot.DATE: pa.types.is_date,
    DataTypeRoot.TIME: pa.types.is_time,
    DataTypeRoot.ARRAY: is_list,
    DataTypeRoot.MAP: pa.types.is_map,
    DataTypeRoot.ROW: pa.types.is_struct,
    DataTypeRoot.TIMESTAMP: _is_timestamp_without_zone,
    DataTypeRoot.TIMESTAMP_LTZ: pa.types.is_timestamp,
}
"""The Arrow types whose values a column takes. A TIMESTAMP_LTZ column takes a timestamp without a zone as UTC."""


def accepts(root: DataTypeRoot, offered: pa.DataType) -> bool:
    """Tell whether a column of this type takes values of an Arrow type, provided that each value fits."""
    return _ACCEPTED[root](offered)


def fits(offered: pa.DataType, data_type: DataType) -> bool:
    """Tell whether a cast from an Arrow type to a type changes no value and no part of a value."""
    if pa.types.is_dictionary(offered):
        offered = offered.value_type
    if pa.types.is_null(offered):
        return True
    if not accepts(data_type.root, offered) or (
        pa.types.is_decimal(offered) and not 0 <= offered.scale <= offered.precision
    ):
        return False
    if pa.types.is_map(offered):
        inner = [offered.key_type, offered.item_type]
    elif pa.types.is_struct(offered):
        parts = {part.name: part.data_type for part in data_type.fields}
        return all(field.name in parts and fits(field.type, parts[field.name]) for field in offered)
    elif data_type.root in NESTED:
        inner = [offered.value_type]
    else:
        return data_type.root is not DataTypeRoot.FLOAT or not pa.types.is_float64(offered)
    return all(fits(kind, part.data_type) for kind, part in zip(inner, data_type.fields, strict=True))
