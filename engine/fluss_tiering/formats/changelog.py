"""A run of changes reduced to what it leaves behind: the last change of each key."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_tiering.formats.log.batch import ChangeType, ChangeTypes


def last_per_key(
    records: pa.Table | pa.RecordBatch, key_names: Sequence[str], change_types: ChangeTypes
) -> npt.NDArray[np.int64]:
    """Where the last change of each key is.

    What a row looked like before an update (UPDATE_BEFORE) is no change of its own.

    Args:
        records: changes of one bucket in log order.
        key_names: of the primary key's columns; keys are equal when their bytes are.
        change_types: one `ChangeType` for each record.

    Returns:
        One index into `records` for each key, ascending. The row lives on where the change type there is INSERT or
        UPDATE_AFTER, and is gone where it is DELETE.
    """
    is_change = change_types != ChangeType.UPDATE_BEFORE
    changes = np.flatnonzero(is_change)
    columns = [records.column(name) for name in key_names]
    if changes.size < records.num_rows:
        columns = [column.filter(pa.array(is_change)) for column in columns]
    keys = [f"key {position}" for position in range(len(columns))]
    grouped = pa.table([*columns, changes], names=[*keys, "change"]).group_by(keys, use_threads=False)
    last: npt.NDArray[np.int64] = grouped.aggregate([("change", "max")])["change_max"].to_numpy()
    return np.sort(last)
