"""Lists within lists of which there are none: Arrow reads offsets that a batch does not have to hold.

If all lists of a column are null or empty, the lists within them have no elements, and a batch may leave out their
offsets. Arrow accepts this, but counts the bytes of such a column (`nbytes`) by whatever lies behind the empty buffer,
which may end the process.
"""

from __future__ import annotations

import pyarrow as pa


def with_offsets(records: pa.RecordBatch) -> pa.RecordBatch:
    """Return records that were decoded, with offsets in all lists that have none."""
    for number, field in enumerate(records.schema):
        if pa.types.is_nested(field.type):
            before = records.column(number)
            after = _with_offsets(before)
            if after is not before:
                records = records.set_column(number, field, after)
    return records


def _with_offsets(array: pa.Array) -> pa.Array:
    """Return the array itself if it lacks nothing."""
    kind = array.type
    if pa.types.is_struct(kind):
        parts = [array.field(number) for number in range(kind.num_fields)]
    elif pa.types.is_list(kind) or pa.types.is_map(kind):
        if len(array) == 0:
            return pa.array([], kind)
        parts = [array.values]
    else:
        return array
    whole = [_with_offsets(part) for part in parts]
    if all(after is before for after, before in zip(whole, parts, strict=True)):
        return array
    own = array.buffers()[: 1 if pa.types.is_struct(kind) else 2]
    return pa.Array.from_buffers(kind, len(array), own, offset=array.offset, children=whole)
