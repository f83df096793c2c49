"""How many buckets a table or a partition has.

Since Fluss 1.0.0 the number of buckets of a table can be changed; `bucket_count_epoch` counts how often. Each partition
keeps its own number, and that of the table is the one of new partitions. The rules are those of Fluss's Java client
1.0.0 (`Cluster.getBucketCountOrFallback`, `ClientUtils.fallbackBucketCountOrFail`, `MetadataUtils`).
"""

from __future__ import annotations

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo
from fluss_tiering.storage.fluss.rpc.calls.metadata import metadata
from fluss_tiering.storage.fluss.rpc.calls.tables import Partition
from fluss_tiering.storage.fluss.rpc.client import FlussClient


def bucket_count(client: FlussClient, table: TableInfo, partition: Partition | None) -> int:
    """Return the number of buckets of a partition, or of a table that is not partitioned (None).

    The table's own number is taken only if it was never changed.

    Raises:
        FlussTieringError: INVALID_TABLE if it was changed and the cluster does not say what the number is here.
    """
    if partition is not None and partition.bucket_count is not None:
        return partition.bucket_count
    if table.bucket_count_epoch == 0:
        return table.descriptor.num_buckets
    # A table without partitions has as many buckets as it has leaders or had some.
    known = 0 if partition is not None else len(client.call(metadata([table.path])).leaders)
    if known == 0:
        what = "the table" if partition is None else f"the partition {partition.name!r}"
        raise FlussTieringError(
            ErrorCode.INVALID_TABLE,
            f"the number of buckets of table {table.path} was changed (bucket count epoch {table.bucket_count_epoch}), "
            f"and the cluster does not say how many buckets {what} has: expected a number, as servers of Fluss 1.0.0 "
            f"tell it; that of the table ({table.descriptor.num_buckets}) may be another one and is not taken; "
            "upgrade all servers of the cluster",
        )
    return known
