"""`spark.read.format("fluss")` on a real Fluss cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from broken_columns import with_broken_last_column
from pyspark.sql.types import LongType, StructType
from source_support import columns, create, load, write
from spark_support import Tiering, served

from engine_support import new_path
from fluss_support import FlussCluster
from fluss_tiering.formats.log.batch import encode_log_batch
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.table import TableBucket, TableDescriptor, WriteKind
from fluss_tiering.spark.source.data_source import FlussDataSource
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey
from fluss_tiering.storage.fluss.rpc.calls.tables import create_database, create_table
from fluss_tiering.storage.fluss.rpc.calls.writes import produce_log
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from needs import needs

COLUMNS = columns(id="BIGINT NOT NULL", name="STRING")


@pytest.fixture(scope="module")
@needs("server")
def cluster(fluss_cluster: FlussCluster, spark, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiering]:
    with served(fluss_cluster.bootstrap, tmp_path_factory.mktemp("cluster-source"), spark) as tiering:
        yield tiering


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


def test_a_query_fetches_and_decodes_only_the_columns_that_it_needs(
    cluster: Tiering, fluss: FlussClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(cluster, COLUMNS)
    batch = pa.record_batch([list(range(500)), [f"name {n} " * 20 for n in range(500)]], schema=arrow_schema(COLUMNS))
    encoded = encode_log_batch(0, 0, batch, schema_id=1, change_types=None, compression="ZSTD")
    # Who reads the names fails.
    fluss.call(produce_log(table.path, TableBucket(table.table_id, 0), with_broken_last_column(encoded)))
    frame = load(cluster, table)
    assert sorted(row.id for row in frame.select("id").collect()) == list(range(500))
    assert frame.count() == 500
    with pytest.raises(Exception, match=r"\[CORRUPT_DATA\]"):
        frame.collect()

    fetched: list[tuple[list[int], int]] = []
    call_of = FlussClient.call

    def observed(client: FlussClient, call, **arguments):
        answer = call_of(client, call, **arguments)
        if call.api is ApiKey.FETCH_LOG:
            fetched.append((list(call.request.tables_req[0].projected_fields), len(answer.records)))
        return answer

    monkeypatch.setattr(FlussClient, "call", observed)
    source = FlussDataSource({"server": cluster.target, "table": str(table.path)})
    reader = source.reader(StructType().add("id", LongType()))
    found = [each for part in reader.partitions() for rows in reader.read(part) for each in rows["id"].to_pylist()]
    assert found == list(range(500))
    ((columns_asked, size),) = fetched
    assert columns_asked == [0]
    assert 0 < size < len(encoded) / 2


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
