"""The last change of each key among the changes of a bucket."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_tiering.formats.log.batch import ChangeType, ChangeTypes


def last_per_key(
    records: pa.Table | pa.RecordBatch, key_names: Sequence[str], change_types: ChangeTypes
) -> npt.NDArray[np.int64]:
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
    is_change = change_types != ChangeType.UPDATE_BEFORE
    changes = np.flatnonzero(is_change)
    columns = [records.column(name) for name in key_names]
    if changes.size < records.num_rows:
        columns = [column.filter(pa.array(is_change)) for column in columns]
    keys = [f"key {position}" for position in range(len(columns))]
    grouped = pa.table([*columns, changes], names=[*keys, "change"]).group_by(keys, use_threads=False)
    last: npt.NDArray[np.int64] = grouped.aggregate([("change", "max")])["change_max"].to_numpy()
    return np.sort(last)
