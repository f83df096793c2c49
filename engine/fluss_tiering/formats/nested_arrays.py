"""Arrow arrays of nested types, taken apart and put together again.

In log batches of Fluss, a part that is NOT NULL may be null if the value around it is null. Arrow's own cast of nested
types refuses such a part. Here each part is cast by itself, and whatever lies under a null is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fluss_tiering.formats.schema import is_bytes, is_list, is_text

Cast = Callable[[pa.Array, pa.DataType], pa.Array]
Counts = npt.NDArray[np.int64]
_MAX_ELEMENTS: Final = 2**31 - 1
_OFFSET_BYTES: Final = 4


def list_parts(lists: pa.Array) -> tuple[Counts, pa.Array]:
    """Return the number of elements of each list, which is 0 for a null, and the elements, one after the other."""
    counts = np.zeros(len(lists), np.int64)
    # `pa.array`, `pc.fill_null` and `to_numpy` load pandas. That takes longer than to write a small round.
    present = np.from_dlpack(lists.is_valid().cast(pa.uint8())).view(np.bool_)
    counts[present] = np.from_dlpack(pc.list_value_length(lists).drop_null())
    return counts, lists.flatten()


def map_parts(maps: pa.MapArray) -> tuple[Counts, pa.Array, pa.Array]:
    """Return the number of entries of each map, which is 0 for a null, and the keys and the values."""
    buffers = maps.buffers()[:2]
    counts, keys = list_parts(_lists(maps, maps.keys, buffers))
    return counts, keys, _lists(maps, maps.items, buffers).flatten()


def size_as(array: pa.Array, kind: pa.DataType) -> int:
    """Return about how many bytes an array takes once it has another type, without making it.

    Arrays of nulls and of dictionaries are small, whatever number of values they stand for.

    Args:
        array: The array, whose buffers are valid.
        kind: The other type.
    """
    count = len(array)
    if pa.types.is_dictionary(array.type):
        return _size_of_dictionary(array) + count * _width(kind)
    if pa.types.is_struct(kind) and pa.types.is_struct(array.type):
        parts = zip((array.field(index) for index in range(array.type.num_fields)), kind, strict=False)
        return count + sum(size_as(part, field.type) for part, field in parts)
    if pa.types.is_map(kind) and pa.types.is_map(array.type):
        entries = size_as(array.keys, kind.key_type) + size_as(array.items, kind.item_type)
        return count * _OFFSET_BYTES + entries
    if pa.types.is_list(kind) and is_list(array.type):
        elements = array.flatten() if pa.types.is_list_view(array.type) else array.values
        return count * _OFFSET_BYTES + size_as(elements, kind.value_type)
    if pa.types.is_struct(kind):
        return count * (1 + sum(_width(field.type) for field in kind))
    return count * _width(kind)


def _size_of_dictionary(array: pa.DictionaryArray) -> int:
    values = array.dictionary
    if not (is_text(values.type) or is_bytes(values.type)):
        return 0
    found = pc.sum(pc.take(pc.binary_length(values), array.indices)).as_py()
    return int(found or 0)


def _width(kind: pa.DataType) -> int:
    """Return the bytes of each value of a type, without those of texts and of elements."""
    if pa.types.is_struct(kind):
        return 1 + sum(_width(field.type) for field in kind)
    try:
        return max(1, int(kind.bit_width) // 8)
    except ValueError:
        return _OFFSET_BYTES


def cast_parts(array: pa.Array, kind: pa.DataType, cast: Cast) -> pa.Array:
    """Return the array in another type, without a check that NOT NULL parts have no nulls.

    Args:
        array: The array, of any type.
        kind: The other type.
        cast: The function that casts arrays without parts, and arrays whose parts differ from those of the other type.

    Raises:
        pa.ArrowInvalid: If there are more elements than Arrow's lists can hold, or if `cast` raises it.
    """
    if array.type == kind:
        return array
    if pa.types.is_map(kind) and pa.types.is_map(array.type):
        counts, keys, values = map_parts(array)
        parts = cast_parts(keys, kind.key_type, cast), cast_parts(values, kind.item_type, cast)
        return _map(counts, parts, kind, _nulls(array))
    if pa.types.is_list(kind) and is_list(array.type):
        counts, elements = list_parts(array)
        return _list(counts, cast_parts(elements, kind.value_type, cast), kind, _nulls(array))
    if pa.types.is_struct(kind) and pa.types.is_struct(array.type) and _names(array.type) == _names(kind):
        fields = [cast_parts(array.field(index), field.type, cast) for index, field in enumerate(kind)]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=_nulls(array))
    return cast(array, kind)


def without_hidden_nulls(array: pa.Array) -> pa.Array:
    """Return the array without nulls in NOT NULL parts of a ROW that is itself null, which Parquet's writer refuses.

    Such a part gets any value, which nobody sees.

    Raises:
        pa.ArrowInvalid: If a NOT NULL part of a ROW is null where the ROW is not.
    """
    kind = array.type
    if pa.types.is_map(kind):
        counts, *parts = map_parts(array)
        return _map(counts, [without_hidden_nulls(part) for part in parts], kind, _nulls(array))
    if pa.types.is_list(kind):
        counts, elements = list_parts(array)
        return _list(counts, without_hidden_nulls(elements), kind, _nulls(array))
    if pa.types.is_struct(kind):
        # Each part is null where the ROW is.
        parts = [without_hidden_nulls(part) for part in array.flatten()]
        for position, field in enumerate(kind):
            if field.nullable or not parts[position].null_count:
                continue
            if parts[position].null_count > array.null_count:
                raise pa.ArrowInvalid(f"the NOT NULL field {field.name!r} of a ROW is null where the ROW is not")
            parts[position] = _all_valid(parts[position])
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=_nulls(array))
    return array


def _all_valid(array: pa.Array) -> pa.Array:
    """Return the array with any values in place of its nulls."""
    kind = array.type
    if pa.types.is_map(kind):
        counts, *parts = map_parts(array)
        return _map(counts, parts, kind, None)
    if pa.types.is_list(kind):
        return _list(*list_parts(array), kind, None)
    if pa.types.is_struct(kind):
        return pa.StructArray.from_arrays([array.field(position) for position in range(len(kind))], fields=list(kind))
    return pa.Array.from_buffers(kind, len(array), [None, *array.buffers()[1:]], offset=array.offset)


def _map(counts: Counts, parts: Sequence[pa.Array], kind: pa.MapType, nulls: pa.BooleanArray | None) -> pa.MapArray:
    return pa.MapArray.from_arrays(positions_of(counts), *parts, kind, mask=nulls)


def _list(counts: Counts, elements: pa.Array, kind: pa.ListType, nulls: pa.BooleanArray | None) -> pa.ListArray:
    return pa.ListArray.from_arrays(positions_of(counts), elements, kind, mask=nulls)


def positions_of(counts: Counts) -> pa.Array:
    """Return the n + 1 positions between lists with these numbers of elements.

    Raises:
        pa.ArrowInvalid: If there are more elements than Arrow's lists can hold.
    """
    ends = np.cumsum(counts)
    if ends.size and ends[-1] > _MAX_ELEMENTS:
        raise pa.ArrowInvalid(f"{ends[-1]} elements are more than Arrow's lists can hold")
    positions = np.concatenate([[0], ends]).astype(np.int32)
    return pa.Array.from_buffers(pa.int32(), positions.size, [None, pa.py_buffer(positions)])


def _lists(maps: pa.MapArray, parts: pa.Array, buffers: list[pa.Buffer | None]) -> pa.ListArray:
    """Return the keys or the values of each map as lists."""
    return pa.Array.from_buffers(pa.list_(parts.type), len(maps), buffers, offset=maps.offset, children=[parts])


def _nulls(array: pa.Array) -> pa.BooleanArray | None:
    return array.is_null() if array.null_count else None


def _names(kind: pa.StructType) -> list[str]:
    return [field.name for field in kind]
