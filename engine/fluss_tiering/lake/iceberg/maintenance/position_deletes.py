"""Position delete files of the format version 2 that a rewrite would save.

A rewrite of data files leaves position delete files of the snapshot from which it began, although no data file is left
to which they apply. Iceberg goes by the data sequence numbers, which new data files have from that snapshot. Here the
sequence numbers of the commits count that have added the data files: a position delete file names data files that were
there when it was written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import SparkSession

from fluss_tiering.lake.iceberg.actions import shuffles_of_its_size
from fluss_tiering.lake.iceberg.java import java_session_of
from fluss_tiering.lake.iceberg.library import JavaTable, ask
from fluss_tiering.lake.iceberg.maintenance.rewrites import PartitionValues

_ALL: Final = {"rewrite-all": "true"}


@dataclass(frozen=True, slots=True)
class MergeableDeletes:
    """The position delete files of a partition that are worth a rewrite.

    Attributes:
        files: The number of its position delete files.
        data_files: The number of its data files.
        fewer: How many position delete files a rewrite saves at least.
    """

    partition: PartitionValues
    files: int
    data_files: int
    fewer: int


def mergeable_deletes(table: JavaTable, least_saved: int) -> list[MergeableDeletes]:
    """Return the partitions whose position delete files are worth a rewrite. Errors are those of the JVM.

    It is worth it if none of them applies to a data file any more, or if they are many more than the data files. Only
    metadata is read, in the driver.

    Args:
        table: The table, which has a snapshot.
        least_saved: How many files fewer are worth a rewrite of deletes that apply.
    """
    found = ask(table, "partitionsWithPositionDeletes", _ALL)
    return [
        MergeableDeletes(tuple(partition), len(written), len(added), _fewer(written, added))
        for partition, written, added in found
        if _is_worth(written, added, least_saved)
    ]


def _is_worth(written: Sequence[int], added: Sequence[int], least_saved: int) -> bool:
    """Return whether delete files that were written by these commits save files, if these have added the data files."""
    return _apply_to_nothing(written, added) or _fewer(written, added) >= least_saved


def _fewer(written: Sequence[int], added: Sequence[int]) -> int:
    # At most one delete file for each data file remains.
    return len(written) if _apply_to_nothing(written, added) else max(0, len(written) - len(added))


def _apply_to_nothing(written: Sequence[int], added: Sequence[int]) -> bool:
    return all(commit < each for commit in written for each in added)


def rewrite_position_deletes(
    spark: SparkSession, table: JavaTable, partitions: Sequence[PartitionValues] | None = None
) -> int:
    """Rewrite position delete files, and return how many there are fewer. Errors are those of the JVM.

    Args:
        partitions: The partitions whose files are all rewritten, at least one; None for what Iceberg chooses.
    """
    with shuffles_of_its_size(spark):
        asked = {"partitions": partitions, "options": {} if partitions is None else _ALL}
        return int(ask(table, "rewritePositionDeletes", java_session_of(spark), asked))
