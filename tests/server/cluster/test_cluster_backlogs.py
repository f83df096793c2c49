"""Tables of a Fluss cluster without new records, for which no Spark is started, and what is dropped untiered: E6."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from cluster_support import ClusterServer, claim, commit, finish, lake_table, put, wait_for

from engine_support import new_path, status
from fluss_support import FlussCluster
from fluss_tiering.client import TieringClient
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, DataType, TableDescriptor, TableInfo, WriteKind
from fluss_tiering.model.tiering import TieringState
from fluss_tiering.server.backends.cluster import backend
from fluss_tiering.spark import application
from fluss_tiering.spark.options import TierOptions
from fluss_tiering.storage.fluss.rpc.calls.tables import drop_partition, drop_table
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from metrics_support import scrape
from waiting import wait_until


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def started(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(application, "own_session", started)


@pytest.mark.usefixtures("no_spark")
def test_a_table_without_new_records_costs_no_spark(fluss_cluster: FlussCluster, tmp_path: Path) -> None:  # D27
    with (
        ClusterServer(tmp_path, fluss_cluster.bootstrap) as server,
        TieringClient(server.target) as client,
    ):
        table = lake_table(client, "unchanged", num_buckets=2)
        put(client, table, 5)
        wait_for(client, table, TieringState.PENDING)
        held = claim(client, table)
        commit(client, table, held)
        finish(client, held)

        named = TierOptions(server=server.target, tables=(table.path,))
        drain = TierOptions(server=server.target, tables=(table.path,), drain=True)
        service = TierOptions(server=server.target, tables=(table.path,), drain=True, follow=True, time_budget="8s")
        for options in (named, drain, service):
            # The coordinator looks at the freshness alone.
            before = wait_for(client, table, TieringState.PENDING).tiering_epoch
            (result,) = application.run(options)
            assert (result.error, result.stats.rows, result.recorded) == (None, 0, True)
            assert result.epoch is not None
            assert result.epoch >= before

        put(client, table, 1, first=5)
        wait_for(client, table, TieringState.PENDING)
        for options in (named, drain, service):
            with pytest.raises(AssertionError, match="Spark was started"):
                application.run(options)
        client.drop_table(table.path, drop_untiered=True)


def test_a_status_tells_what_waits_in_a_cluster(
    fluss_cluster: FlussCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # D27
    monkeypatch.setattr(backend, "_LOG_ENDS_INTERVAL_MS", 100)
    with (
        ClusterServer(tmp_path, fluss_cluster.bootstrap) as server,
        TieringClient(server.target) as client,
    ):
        table = lake_table(client, "waiting", freshness="1h", primary_key=False, num_buckets=2)
        put(client, table, 10)
        wait_until(lambda: status(client, table).records_waiting == 10)
        told = status(client, table)
        assert told.freshness_ms == 3_600_000
        assert told.next_round_time is None, "the coordinator decides"
        assert told.waiting_since is not None
        assert told.waiting_since >= table.created_time
        held = claim(client, table)
        commit(client, table, held)
        assert status(client, table).records_waiting == 0, "a commit is counted at once"
        finish(client, held)
        put(client, table, 3, first=10)
        wait_until(lambda: status(client, table).records_waiting == 3)
        client.drop_table(table.path, drop_untiered=True)


METRIC = "fluss_tiering_dropped_untiered_records_total"
COLUMNS = (Column("id", DataType.parse("INT NOT NULL")), Column("day", DataType.parse("STRING NOT NULL")))
OPTIONS = {"table.datalake.enabled": "true", "table.datalake.freshness": "1h"}


def put_day(client: TieringClient, table: TableInfo, day: str, count: int) -> None:
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
            put_day(client, table, day, count)
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
