"""A round of a table with very many buckets."""

from __future__ import annotations

import pyarrow as pa
import pytest
from spark_support import Tiering

from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.table import Column, DataType, TableDescriptor, TablePath, WriteKind

PARTITIONS = 16
BUCKETS = 1024
COLUMNS = (Column("id", DataType.parse("BIGINT NOT NULL")), Column("day", DataType.parse("STRING NOT NULL")))


# D49, D51, D52
@pytest.mark.long
@pytest.mark.timeout(1800)
def test_16384_buckets_are_written_planned_and_committed(tiering: Tiering):
    descriptor = TableDescriptor(
        COLUMNS,
        bucket_keys=("id",),
        num_buckets=BUCKETS,
        partition_keys=("day",),
        properties={"table.datalake.enabled": "true", "table.datalake.freshness": "1d"},
    )
    table = tiering.client.create_table(TablePath("shop", "buckets"), descriptor)
    of_partition = 12 * BUCKETS
    count = PARTITIONS * of_partition
    for _ in range(2):
        for number in range(PARTITIONS):
            ids = list(range(number * of_partition, (number + 1) * of_partition))
            rows = pa.record_batch([ids, [f"day-{number}"] * of_partition], schema=arrow_schema(COLUMNS))
            for _ in tiering.client.write_rows(table.path, WriteKind.APPEND, [rows]):
                pass
        result = tiering.tier(table)
        assert result.stats.rows == count
    # Some buckets may have no row: a row's id decides its bucket.
    ends = {bucket: end for bucket, end in tiering.log_ends(table).items() if end > 0}
    assert len(ends) > 0.999 * PARTITIONS * BUCKETS
    known = tiering.client.lake_snapshot(table.path).log_end_offsets
    assert {bucket: offset for bucket, offset in known.items() if offset > 0} == ends
    name = tiering.name(table)
    assert tiering.spark.sql(f"SELECT sum(record_count) FROM {name}.files").first()[0] == 2 * count
    one_day = tiering.spark.sql(f"SELECT count(*), count(DISTINCT id) FROM {name} WHERE day = 'day-3'").first()
    assert tuple(one_day) == (2 * of_partition, of_partition)
    for snapshot in tiering.snapshots(table):
        assert sum(len(key) + len(value) for key, value in snapshot.summary.items()) < 64_000
