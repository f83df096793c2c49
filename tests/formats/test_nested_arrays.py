"""Nested columns as the lake and Spark hold them, with any bytes under their nulls."""

import pyarrow as pa

from cases import cases
from fluss_tiering.formats.micros import as_type, lake_type, micros_type
from fluss_tiering.formats.schema import arrow_type
from fluss_tiering.model.data_type import DataType

NESTED = DataType.parse("ROW<r ROW<x INT NOT NULL>, t TIMESTAMP(9), l ARRAY<SMALLINT>, m MAP<TIME(3), TIMESTAMP(9)>>")


def nested() -> pa.StructArray:
    """Return three rows: a null, one whose inner row is null, and one with all values."""
    row, time, numbers, times = arrow_type(NESTED)
    inner = pa.StructArray.from_arrays(
        # In log batches of Fluss there is nothing under a null.
        [pa.array([None, None, 7], pa.int32())],
        fields=list(row.type),
        mask=pa.array([True, True, False]),
    )
    parts = [
        inner,
        pa.array([None, -1, 1_999], time.type),
        pa.array([None, [1, None], []], numbers.type),
        pa.array([None, [(1, -1), (2, None)], [(3, -1_000)]], times.type),
    ]
    return pa.StructArray.from_arrays(parts, fields=list(arrow_type(NESTED)), mask=pa.array([True, False, False]))


@cases(("kind", "per_millisecond"), [(lake_type(NESTED), 1_000), (micros_type(NESTED), 1_000_000)])
@cases("start", [0, 1])
def test_parts_are_converted_as_columns_are(kind: pa.DataType, per_millisecond: int, start: int) -> None:
    made = as_type(nested().slice(start), kind)
    made.validate(full=True)
    assert made.type == kind
    rows = [
        None,
        # The nanosecond before the epoch is in the microsecond before it.
        {"r": None, "t": -1, "l": [1, None], "m": [(per_millisecond, -1), (2 * per_millisecond, None)]},
        {"r": {"x": 7}, "t": 1, "l": [], "m": [(3 * per_millisecond, -1)]},
    ]
    assert made.equals(pa.array(rows[start:], kind))


def test_lists_in_other_layouts_keep_their_elements() -> None:
    wanted = pa.list_(pa.struct([pa.field("x", pa.int64(), nullable=False)]))
    values = [[{"x": 1}, {"x": 2}], None, [{"x": 3}, None]]
    element = pa.struct([pa.field("x", pa.int32(), nullable=False)])
    for kind in (pa.list_(element), pa.large_list(element), pa.list_(element, 2)):
        made = as_type(pa.array(values, kind).slice(1), wanted)
        assert (made.type, made.to_pylist()) == (wanted, values[1:])
