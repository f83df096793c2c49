"""`spark.read.format("fluss")` on a real Fluss cluster."""

from __future__ import annotations

import pyarrow as pa
from source_support import columns, create, load, write
from spark_support import Tiering

from engine_support import new_path
from fluss_tiering.formats.log.batch import encode_log_batch
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.table import TableBucket, TableDescriptor, WriteKind
from fluss_tiering.storage.fluss.rpc.calls.tables import create_database, create_table
from fluss_tiering.storage.fluss.rpc.calls.writes import produce_log
from fluss_tiering.storage.fluss.rpc.client import FlussClient

COLUMNS = columns(id="BIGINT NOT NULL", name="STRING")


def test_tables_of_a_cluster_are_read_as_of_now(cluster: Tiering) -> None:
    keyed = create(cluster, COLUMNS, [(n, f"name {n}") for n in range(100)], key="id", num_buckets=2)
    list(cluster.client.write_rows(keyed.path, WriteKind.DELETE, [pa.table({"id": [3]})]))
    write(cluster, keyed, [(4, "new")])
    logged = create(cluster, COLUMNS, [(n, f"name {n}") for n in range(100)], bucket_key="id", num_buckets=2)
    expected = {n: f"name {n}" for n in range(100)}
    assert dict(load(cluster, logged).collect()) == expected
    del expected[3]
    assert dict(load(cluster, keyed).collect()) == {**expected, 4: "new"}
    assert load(cluster, keyed).filter("id = 4").collect() == [(4, "new")]


def test_a_filter_misses_no_row_of_a_table_that_is_not_bucketed_for_iceberg(
    cluster: Tiering, fluss: FlussClient
) -> None:
    path = new_path()
    fluss.call(create_database(path.database, ignore_if_exists=True))
    made_from = TableDescriptor(
        COLUMNS, bucket_keys=("id",), num_buckets=8, properties={"table.datalake.format": "lance"}
    )
    fluss.call(create_table(path, made_from))
    (table,) = cluster.client.get_tables([path])
    batch = pa.record_batch([list(range(20)), ["x"] * 20], schema=arrow_schema(COLUMNS))
    # Fluss's own hash would spread them otherwise; here all of them lie where Iceberg's puts few.
    encoded = encode_log_batch(0, 0, batch, schema_id=1, change_types=None, compression="ZSTD")
    fluss.call(produce_log(path, TableBucket(table.table_id, 0), encoded))
    assert sorted(load(cluster, table).filter("id IN (1, 7, 13)").collect()) == [(1, "x"), (7, "x"), (13, "x")]
