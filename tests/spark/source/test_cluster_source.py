"""`spark.read.format("fluss")` on a real Fluss cluster."""

from __future__ import annotations

import pyarrow as pa
from source_support import columns, create, load, write
from spark_support import Tiering

from fluss_tiering.model.table import WriteKind

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
