"""What a Fluss cluster drops before it is in the lake: through this server, and by other clients or by itself: E6."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from cluster_support import ClusterServer, status

from engine_support import new_path
from fluss_support import FlussCluster
from fluss_tiering.client import TieringClient
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, DataType, TableDescriptor, TableInfo, WriteKind
from fluss_tiering.server.backends.cluster import backend
from fluss_tiering.storage.fluss.rpc.calls.tables import drop_partition, drop_table
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from metrics_support import scrape
from waiting import wait_until

METRIC = "fluss_tiering_dropped_untiered_records_total"
COLUMNS = (Column("id", DataType.parse("INT NOT NULL")), Column("day", DataType.parse("STRING NOT NULL")))
OPTIONS = {"table.datalake.enabled": "true", "table.datalake.freshness": "1h"}


def put(client: TieringClient, table: TableInfo, day: str, count: int) -> None:
    rows = pa.table({"id": pa.array(range(count), pa.int32()), "day": [day] * count})
    assert sum(client.write_rows(table.path, WriteKind.APPEND, [rows])) == count


def test_what_is_dropped_before_it_is_in_the_lake_is_counted_whoever_drops_it(
    fluss_cluster: FlussCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # E6
    monkeypatch.setattr(backend, "_LOG_ENDS_INTERVAL_MS", 100)
    with (
        ClusterServer(tmp_path, fluss_cluster.bootstrap, metrics_enabled=True, metrics_port=0) as server,
        TieringClient(server.target) as client,
        FlussClient(fluss_cluster.bootstrap) as fluss,
    ):
        descriptor = TableDescriptor(COLUMNS, properties=OPTIONS, partition_keys=("day",))
        table = client.create_table(new_path(), descriptor)
        for day, count in {"monday": 3, "tuesday": 5, "friday": 7}.items():
            put(client, table, day, count)
        with pytest.raises(FlussTieringError, match=r"partition monday of .* has 3 log records") as refused:
            client.drop_partition(table.path, ["monday"])
        assert refused.value.code is ErrorCode.INVALID_TIERING_STATE
        assert client.drop_partition(table.path, ["monday"], drop_untiered=True) == 3
        assert status(client, table).dropped_untiered_records == 3
        wait_until(lambda: status(client, table).records_waiting == 12)

        # As the cluster itself does when the retention of a partition is over.
        fluss.call(drop_partition(table.path, {"day": "tuesday"}))
        wait_until(lambda: status(client, table).dropped_untiered_records == 8)
        assert status(client, table).records_waiting == 7
        fluss.call(drop_table(table.path))

        def counted() -> float:
            samples = scrape(server.server.metrics_port).get(METRIC, [])
            return sum(number for labels, number in samples if labels["table"] == table.path.table)

        wait_until(lambda: counted() == 15)
