"""Hypothesis strategies for tables with any supported columns. Values are extreme and ordinary, in slices of arrays."""

from collections.abc import Sequence
from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from fluss_tiering.formats.schema import arrow_schema, arrow_type
from fluss_tiering.model.data_type import KEY, NESTED, PARTS, WITH_LENGTH, WITH_PRECISION, Field
from fluss_tiering.model.table import Column, DataType, DataTypeRoot

MAX_MICROSECONDS = 2**63 - 1


def _integers(low: int, high: int) -> st.SearchStrategy[int]:
    edges = sorted({low, low + 1, -129, -128, -1, 0, 1, 127, 128, 16383, 16384, high - 1, high})
    return st.sampled_from([edge for edge in edges if low <= edge <= high]) | st.integers(low, high)


@cache  # A new strategy of texts works out anew which characters there are.
def values_of(data_type: DataType) -> st.SearchStrategy[Any]:
    """Return values as Arrow's constructors take them: dates as days, timestamps as counts in their unit."""
    match data_type.root:
        case DataTypeRoot.BOOLEAN:
            return st.booleans()
        case DataTypeRoot.TINYINT:
            return _integers(-(2**7), 2**7 - 1)
        case DataTypeRoot.SMALLINT:
            return _integers(-(2**15), 2**15 - 1)
        case DataTypeRoot.TIME:
            unit = arrow_type(data_type).unit
            step = {"us": 10**3, "ns": 10**6}.get(unit, 1)
            return _integers(0, (86_400 if unit == "s" else 86_400_000) - 1).map(lambda count: count * step)
        case DataTypeRoot.FLOAT:
            return st.sampled_from([0.0, -0.0, float("nan"), float("inf"), 2.0**-149]) | st.floats(width=32)
        case DataTypeRoot.CHAR:
            return st.text(max_size=data_type.length)
        case DataTypeRoot.BINARY:
            return st.binary(min_size=data_type.length, max_size=data_type.length)
        case DataTypeRoot.BYTES:
            return st.sampled_from([b"", b"\0", b"\xff" * 128]) | st.binary(max_size=20)
        case DataTypeRoot.INT | DataTypeRoot.DATE:
            return _integers(-(2**31), 2**31 - 1)
        case DataTypeRoot.BIGINT:
            return _integers(-(2**63), 2**63 - 1)
        case DataTypeRoot.DOUBLE:
            return st.sampled_from([0.0, -0.0, float("nan"), float("inf"), 5e-324]) | st.floats()
        case DataTypeRoot.STRING:
            return st.sampled_from(["", "\0", "ä€😀", "x" * 127, "x" * 128]) | st.text(max_size=20)
        case DataTypeRoot.DECIMAL:
            most = 10**data_type.precision - 1
            return _integers(-most, most).map(lambda unscaled: Decimal(f"{unscaled}e-{data_type.scale}"))
        case DataTypeRoot.ARRAY:
            return st.lists(_or_null(data_type.fields[0].data_type), max_size=3)
        case DataTypeRoot.MAP:
            key, value = (_or_null(field.data_type) for field in data_type.fields)
            return st.lists(st.tuples(key, value), max_size=3)
        case DataTypeRoot.ROW:
            return st.fixed_dictionaries({field.name: _or_null(field.data_type) for field in data_type.fields})
        case _:
            coarser = {"s": 10**6, "ms": 10**3}.get(arrow_type(data_type).unit)
            most = MAX_MICROSECONDS // coarser if coarser else MAX_MICROSECONDS
            return _integers(-most, most)


SCALARS = [root for root in DataTypeRoot if root not in NESTED]


@st.composite
def data_types(
    draw: st.DrawFn, *, nullable: bool | None = None, nesting: int = 0, roots: Sequence[DataTypeRoot] = ()
) -> DataType:
    root = draw(st.sampled_from(roots or (list(DataTypeRoot) if nesting else SCALARS)))
    may_be_null = draw(st.booleans()) if nullable is None else nullable
    if root in NESTED:
        parts = data_types(nesting=nesting - 1)
        names = PARTS.get(root) or draw(st.lists(st.sampled_from(["a", "b c", "`", "'é"]), min_size=1, unique=True))
        fields = [
            Field(name, draw(data_types(nullable=False, nesting=nesting - 1) if name == KEY else parts))
            for name in names
        ]
        return DataType(root, may_be_null, fields=tuple(fields))
    if root is DataTypeRoot.DECIMAL:
        precision = draw(st.sampled_from([1, 9, 18, 19, 38]))
        return DataType(root, may_be_null, precision, draw(st.integers(0, precision)))
    if root in WITH_PRECISION:
        return DataType(root, may_be_null, draw(st.integers(0, 9)))
    if root in WITH_LENGTH:
        return DataType(root, may_be_null, length=draw(st.sampled_from([1, 2, 16, 130])))
    return DataType(root, may_be_null)


def columns(
    max_size: int = 18, *, nullable: bool | None = None, nesting: int = 0
) -> st.SearchStrategy[tuple[Column, ...]]:
    """Return columns, as many as three bytes of null bits allow at most."""
    return st.lists(data_types(nullable=nullable, nesting=nesting), min_size=1, max_size=max_size).map(
        lambda types: tuple(Column(f"c{index}", data_type) for index, data_type in enumerate(types))
    )


def _or_null(data_type: DataType) -> st.SearchStrategy[Any]:
    values = values_of(data_type)
    return st.none() | values if data_type.nullable else values


@st.composite
def record_batches(draw: st.DrawFn, of: Sequence[Column], max_rows: int = 8) -> pa.RecordBatch:
    """Return rows of a table with these columns. They are a slice, so that arrays start anywhere in their buffers."""
    count = draw(st.integers(0, max_rows))
    arrays = []
    for column in of:
        drawn = draw(st.lists(_or_null(column.data_type), min_size=count, max_size=count))
        arrays.append(pa.array(drawn, arrow_type(column.data_type)))
    batch = pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(of))
    start = draw(st.integers(0, count))
    return batch.slice(start, draw(st.integers(0, count - start)))


def same(left: pa.RecordBatch, right: pa.RecordBatch) -> bool:
    """Tell whether two batches hold the same rows, bit by bit: NaN is NaN, and -0.0 is not 0.0."""
    if left.schema != right.schema or left.num_rows != right.num_rows:
        return False
    return all(_same_values(a, b) for a, b in zip(left.columns, right.columns, strict=True))


def with_counts(array: pa.Array) -> pa.Array:
    """Return the rows with dates as days, and times and timestamps as counts in their unit, also in nested values."""
    return array.cast(_counted(array.type))


def _counted(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_map(kind):
        return pa.map_(_counted_field(kind.key_field).with_nullable(False), _counted_field(kind.item_field))
    if pa.types.is_list(kind):
        return pa.list_(_counted_field(kind.value_field))
    if pa.types.is_struct(kind):
        return pa.struct([_counted_field(field) for field in kind])
    if not pa.types.is_temporal(kind):
        return kind
    return pa.int32() if kind.bit_width == 32 else pa.int64()


def _counted_field(field: pa.Field) -> pa.Field:
    # All of them are nullable: a NOT NULL field may be null under a null, and such a value cannot be cast.
    return field.with_type(_counted(field.type)).with_nullable(True)


def _same_values(left: pa.Array, right: pa.Array) -> bool:
    if pa.types.is_nested(left.type):
        # They are compared as texts, because NaN and -0.0 have texts of their own.
        return repr(with_counts(left).to_pylist()) == repr(with_counts(right).to_pylist())
    if not pa.types.is_floating(left.type):
        return bool(left.equals(right))
    item = np.int64 if pa.types.is_float64(left.type) else np.int32
    bits = [pa.array(array.to_numpy(zero_copy_only=False).view(item)) for array in (left, right)]
    return bool(
        left.is_valid().equals(right.is_valid())
        and bits[0].filter(left.is_valid()).equals(bits[1].filter(right.is_valid()))
    )
