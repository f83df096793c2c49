"""The last change of each key among the changes of a bucket."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from fluss_tiering.formats.compiled import Int64s
from fluss_tiering.formats.log.batch import ChangeType, ChangeTypes
from fluss_tiering.formats.micros import column_of

Values: TypeAlias = pa.Array | pa.ChunkedArray
_FEW: Final = 1 << 20
"""The number of changes up to which loading pandas would take longer than it saves."""


def last_per_key(records: pa.Table | pa.RecordBatch, key_names: Sequence[str], change_types: ChangeTypes) -> Int64s:
    """Find the last change of each key.

    A record with the type UPDATE_BEFORE is not a change of its own. It says how a row was before an update.

    Args:
        records: The changes of one bucket, in the order of the log.
        key_names: The names of the primary key columns. Two keys are equal if their bytes are equal.
        change_types: The `ChangeType` of each record.

    Returns:
        The index in `records` of the last change of each key, ascending. The row exists after the changes if that
        change is an INSERT or an UPDATE_AFTER. It does not exist if that change is a DELETE.
    """
    changes = np.flatnonzero(change_types != ChangeType.UPDATE_BEFORE)
    columns = [records.column(name) for name in key_names]
    if changes.size < records.num_rows:
        columns = [column.take(column_of(pa.int64(), changes)) for column in columns]
    few = changes.size <= _FEW and not any(pa.types.is_floating(column.type) or column.null_count for column in columns)
    return np.sort((_last_of_few if few else _last_of_many)(columns, changes))


def _last_of_many(columns: Sequence[Values], changes: Int64s) -> Int64s:
    keys = [f"key {position}" for position in range(len(columns))]
    table = pa.table([*columns, column_of(pa.int64(), changes)], names=[*keys, "change"])
    last: Int64s = table.group_by(keys, use_threads=False).aggregate([("change", "max")])["change_max"].to_numpy()
    return last


def _last_of_few(columns: Sequence[Values], changes: Int64s) -> Int64s:
    """Do the same without `group_by`, which loads pandas. That takes a worker longer than all of a small round."""
    if not changes.size:
        return changes
    numbers = _numbers(columns[0])
    for column in columns[1:]:
        more = _numbers(column)
        numbers = _numbers(column_of(pa.int64(), numbers * (more.max() + 1) + more))
    last = np.empty(numbers.max() + 1, np.int64)
    # Of several values for one place, NumPy keeps the last.
    last[numbers] = changes
    return last


def _numbers(column: Values) -> Int64s:
    """Number the distinct values from 0 on, and return the number of each value. `to_numpy` would load pandas, too."""
    encoded = column.dictionary_encode()
    chunks = encoded.chunks if isinstance(encoded, pa.ChunkedArray) else [encoded]
    return np.concatenate([np.from_dlpack(chunk.indices) for chunk in chunks]).astype(np.int64)
