"""Lists within lists of which there are none, as a Fluss server writes them: without offsets."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fluss_tiering.formats.log.java_batches import with_offsets

WORD = 0x7000_0001
BEHIND = pa.py_buffer(WORD.to_bytes(4, "little") * 64)
"""What lies behind the place of the offsets that are not there: where they would point to, there is nothing."""
NOTHING = BEHIND.slice(0, 0)


def without_offsets(kind: pa.DataType) -> pa.Array:
    """Return an array of this type without elements, whose lists and texts have no offsets."""
    buffers: list[pa.Buffer | None] = [None]
    if not pa.types.is_struct(kind):
        buffers.append(NOTHING)
    if pa.types.is_string(kind):
        buffers.append(NOTHING)
    children = None
    if pa.types.is_map(kind):
        children = [without_offsets(pa.struct([kind.key_field, kind.item_field]))]
    elif pa.types.is_nested(kind):
        children = [without_offsets(kind.field(number).type) for number in range(kind.num_fields)]
    return pa.Array.from_buffers(kind, 0, buffers, children=children)


TEXTS = pa.list_(pa.string())
NAMED = {"texts": TEXTS, "map": pa.map_(pa.string(), TEXTS), "row": pa.struct([("a", TEXTS), ("b", pa.int32())])}


@pytest.mark.parametrize("inner", NAMED)
def test_lists_that_are_all_null_can_be_counted(inner: str) -> None:
    kind = pa.list_(NAMED[inner])
    nulls = pa.Array.from_buffers(
        kind, 3, [pa.py_buffer(b"\0"), pa.py_buffer(bytes(16))], children=[without_offsets(NAMED[inner])]
    )
    records = with_offsets(pa.record_batch([pa.array([1, 2, 3]), nulls, nulls], ["id", "lists", "again"]))

    records.validate(full=True)
    assert records.nbytes < 200
    assert records.to_pylist() == [{"id": number, "lists": None, "again": None} for number in (1, 2, 3)]


def test_what_lacks_nothing_is_left_as_it_is() -> None:
    maps = pa.array([[("k", [1])], None], pa.map_(pa.string(), pa.list_(pa.int32())))
    records = pa.record_batch([pa.array([1, 2]), pa.array([[["a"], None], None]), maps], ["id", "lists", "maps"])
    assert with_offsets(records) is records


def test_a_row_with_such_a_list_keeps_its_nulls() -> None:
    inner = pa.list_(TEXTS)
    nulls = pa.Array.from_buffers(
        inner, 3, [pa.py_buffer(b"\0"), pa.py_buffer(bytes(16))], children=[without_offsets(TEXTS)]
    )
    rows = pa.StructArray.from_arrays([pa.array([1, 2, 3]), nulls], ["n", "lists"], mask=pa.array([False, True, False]))
    records = with_offsets(pa.record_batch([rows], ["row"]))
    assert records.column("row").to_pylist() == [{"n": 1, "lists": None}, None, {"n": 3, "lists": None}]
    assert records.nbytes < 200
