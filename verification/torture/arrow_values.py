"""Plain values as Arrow arrays, which are written, and Arrow arrays that a judge has read as comparable values."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Hashable, Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from fluss_tiering.formats.schema import arrow_schema, arrow_type
from fluss_tiering.model.data_type import DataType, DataTypeRoot
from fluss_tiering.model.table import Column
from torture.values import Value, digits_of, plain_value

_SHOWN_CHARACTERS: Final = 200
_TIMESTAMPS: Final = (DataTypeRoot.TIMESTAMP, DataTypeRoot.TIMESTAMP_LTZ)
_INTEGERS: Final = (DataTypeRoot.TINYINT, DataTypeRoot.SMALLINT, DataTypeRoot.INT, DataTypeRoot.BIGINT)


def table_of(columns: Sequence[Column], rows: Sequence[Sequence[Value]]) -> pa.Table:
    """Return rows as a table in the Arrow schema of the columns."""
    arrays = [array_of(column.data_type, [row[number] for row in rows]) for number, column in enumerate(columns)]
    return pa.Table.from_arrays(arrays, schema=arrow_schema(columns))


def array_of(data_type: DataType, values: Sequence[Value]) -> pa.Array:
    """Return values as an Arrow array. Under a null, a part that is NOT NULL has some value."""
    kind = arrow_type(data_type)
    absent = pa.array([value is None for value in values], pa.bool_())
    mask = absent if any(value is None for value in values) else None
    match data_type.root:
        case DataTypeRoot.ARRAY:
            (element,) = data_type.fields
            elements = array_of(element.data_type, [each for value in values for each in value or ()])
            return pa.ListArray.from_arrays(_ends(values), elements, kind, mask=mask)
        case DataTypeRoot.MAP:
            key, value = data_type.fields
            pairs = [pair for each in values for pair in each or ()]
            keys = array_of(key.data_type, [pair[0] for pair in pairs])
            items = array_of(value.data_type, [pair[1] for pair in pairs])
            return pa.MapArray.from_arrays(_ends(values), keys, items, kind, mask=mask)
        case DataTypeRoot.ROW:
            parts = [
                array_of(
                    field.data_type,
                    [_beneath(field.data_type) if value is None else value[number] for value in values],
                )
                for number, field in enumerate(data_type.fields)
            ]
            return pa.StructArray.from_arrays(parts, fields=list(kind), mask=mask)
        case root if root in _TIMESTAMPS:
            return pa.array(values, pa.int64()).cast(kind)
        case DataTypeRoot.DATE:
            return pa.array(values, pa.int32()).cast(kind)
        case DataTypeRoot.TIME:
            return pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)
        case _:
            return pa.array(values, kind)


def _beneath(data_type: DataType) -> Value:
    return None if data_type.nullable else plain_value(data_type)


def _ends(values: Sequence[Value]) -> pa.Array:
    ends = [0]
    for value in values:
        ends.append(ends[-1] + len(value or ()))
    return pa.array(ends, pa.int32())


def lake_value(data_type: DataType, value: Value) -> Value:
    """Return a written value as the lake has it: times and timestamps in microseconds."""
    if value is None:
        return None
    match data_type.root:
        case DataTypeRoot.ARRAY:
            return tuple(lake_value(data_type.fields[0].data_type, each) for each in value)
        case DataTypeRoot.MAP:
            key, item = (field.data_type for field in data_type.fields)
            return tuple((lake_value(key, each), lake_value(item, other)) for each, other in value)
        case DataTypeRoot.ROW:
            return tuple(lake_value(field.data_type, each) for field, each in zip(data_type.fields, value, strict=True))
        case root if root in _TIMESTAMPS or root is DataTypeRoot.TIME:
            return int(value) * 10**6 // 10 ** digits_of(data_type)
        case _:
            return value


def comparable(value: Value) -> Hashable:
    """Return a value in a form in which two are equal exactly if they are the same.

    There is one NaN, the negative zero is told from the positive one, and a long text is its digest.
    """
    if isinstance(value, tuple):
        return tuple(comparable(each) for each in value)
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        return "-0.0" if value == 0 and math.copysign(1, value) < 0 else value
    if isinstance(value, bytearray | memoryview):
        value = bytes(value)
    if isinstance(value, str | bytes) and len(value) > _SHOWN_CHARACTERS:
        raw = value.encode(errors="surrogatepass") if isinstance(value, str) else value
        return f"{value[:20]!r}... {len(value)} long, {hashlib.sha256(raw).hexdigest()[:16]}"
    return value  # type: ignore[no-any-return]


def rows_of(columns: Sequence[Column], table: pa.Table) -> list[tuple[Value, ...]]:
    """Return the rows of a table that a judge has read, in the order of the columns."""
    if table.num_rows == 0:
        return []
    return list(zip(*(values_of(column.data_type, table.column(column.name)) for column in columns), strict=True))


def values_of(data_type: DataType, column: pa.ChunkedArray | pa.Array) -> list[Value]:
    """Return an array that a judge has read as comparable values."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
    match data_type.root:
        case DataTypeRoot.ARRAY:
            return _lists(array, data_type.fields[0].data_type)
        case DataTypeRoot.MAP:
            key, value = (field.data_type for field in data_type.fields)
            lengths = pc.list_value_length(_as_lists(array, array.keys)).to_pylist()
            keys = values_of(key, _as_lists(array, array.keys).flatten())
            items = values_of(value, _as_lists(array, array.items).flatten())
            return _grouped(lengths, list(zip(keys, items, strict=True)))
        case DataTypeRoot.ROW:
            parts = [
                values_of(field.data_type, part) for field, part in zip(data_type.fields, array.flatten(), strict=True)
            ]
            present = array.is_valid().to_pylist()
            return [row if here else None for here, row in zip(present, zip(*parts, strict=True), strict=True)]
        case root if root in _TIMESTAMPS:
            return _micros(array)
        case DataTypeRoot.DATE:
            return array.cast(pa.date32()).cast(pa.int32()).to_pylist()
        case DataTypeRoot.TIME:
            return array.cast(pa.time64("us")).cast(pa.int64()).to_pylist()
        case DataTypeRoot.BOOLEAN:
            return [None if each is None else bool(each) for each in array.to_pylist()]
        case root:
            return [_typed(root, each) for each in array.to_pylist()]


def _micros(array: pa.TimestampArray) -> list[Value]:
    factor = {"s": 10**6, "ms": 10**3, "us": 1, "ns": 1}[array.type.unit]
    divisor = 1000 if array.type.unit == "ns" else 1
    return [None if count is None else count * factor // divisor for count in array.cast(pa.int64()).to_pylist()]


_CASTS: Final[dict[DataTypeRoot, Callable[[Any], Any]]] = {
    DataTypeRoot.BINARY: lambda each: each.encode() if isinstance(each, str) else bytes(each),
    DataTypeRoot.BYTES: lambda each: each.encode() if isinstance(each, str) else bytes(each),
    DataTypeRoot.CHAR: lambda each: each.decode() if isinstance(each, bytes) else each,
    DataTypeRoot.STRING: lambda each: each.decode() if isinstance(each, bytes) else each,
    DataTypeRoot.DECIMAL: Decimal,
}


def _typed(root: DataTypeRoot, value: Any) -> Value:
    if value is None:
        return None
    cast = _CASTS.get(root)
    return cast(value) if cast else value


def _lists(array: pa.Array, element: DataType) -> list[Value]:
    return _grouped(pc.list_value_length(array).to_pylist(), values_of(element, array.flatten()))


def _as_lists(maps: pa.MapArray, parts: pa.Array) -> pa.ListArray:
    return pa.Array.from_buffers(
        pa.list_(parts.type), len(maps), maps.buffers()[:2], offset=maps.offset, children=[parts]
    )


def _grouped(lengths: Sequence[int | None], parts: Sequence[Value]) -> list[Value]:
    grouped: list[Value] = []
    position = 0
    for length in lengths:
        if length is None:
            grouped.append(None)
            continue
        grouped.append(tuple(parts[position : position + length]))
        position += length
    return grouped
