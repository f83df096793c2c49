"""Arrow arrays of nested types, taken apart and put together again.

In log batches of Fluss, a part that is NOT NULL may be null if the value around it is null. Arrow's own cast of nested
types refuses such a part. Here each part is cast by itself, and whatever lies under a null is ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fluss_tiering.formats.schema import is_list

Cast = Callable[[pa.Array, pa.DataType], pa.Array]
Counts = npt.NDArray[np.int64]
_MAX_ELEMENTS: Final = 2**31 - 1


def list_parts(lists: pa.Array) -> tuple[Counts, pa.Array]:
    """Return the number of elements of each list, which is 0 for a null, and the elements, one after the other."""
    counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    return counts.astype(np.int64), lists.flatten()


def map_parts(maps: pa.MapArray) -> tuple[Counts, pa.Array, pa.Array]:
    """Return the number of entries of each map, which is 0 for a null, and the keys and the values."""
    buffers = maps.buffers()[:2]
    counts, keys = list_parts(_lists(maps, maps.keys, buffers))
    return counts, keys, _lists(maps, maps.items, buffers).flatten()


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
        return pa.MapArray.from_arrays(positions_of(counts), *parts, kind, mask=_nulls(array))
    if pa.types.is_list(kind) and is_list(array.type):
        counts, elements = list_parts(array)
        elements = cast_parts(elements, kind.value_type, cast)
        return pa.ListArray.from_arrays(positions_of(counts), elements, kind, mask=_nulls(array))
    if pa.types.is_struct(kind) and pa.types.is_struct(array.type) and _names(array.type) == _names(kind):
        fields = [cast_parts(array.field(index), field.type, cast) for index, field in enumerate(kind)]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=_nulls(array))
    return cast(array, kind)


def positions_of(counts: Counts) -> pa.Array:
    """Return the n + 1 positions between lists with these numbers of elements.

    Raises:
        pa.ArrowInvalid: If there are more elements than Arrow's lists can hold.
    """
    ends = np.cumsum(counts)
    if ends.size and ends[-1] > _MAX_ELEMENTS:
        raise pa.ArrowInvalid(f"{ends[-1]} elements are more than Arrow's lists can hold")
    return pa.array(np.concatenate([[0], ends]).astype(np.int32))


def _lists(maps: pa.MapArray, parts: pa.Array, buffers: list[pa.Buffer | None]) -> pa.ListArray:
    """Return the keys or the values of each map as lists."""
    return pa.Array.from_buffers(pa.list_(parts.type), len(maps), buffers, offset=maps.offset, children=[parts])


def _nulls(array: pa.Array) -> pa.BooleanArray | None:
    return array.is_null() if array.null_count else None


def _names(kind: pa.StructType) -> list[str]:
    return [field.name for field in kind]
