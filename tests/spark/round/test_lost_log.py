"""Rounds of tables whose logs no longer begin at offset 0, on the embedded storage and on a Fluss cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from spark_support import LEGACY, Tiering, lake_server, named, replace_stage

from fluss_tiering.client import TieringClient
from fluss_tiering.formats.log.batch import read_header
from fluss_tiering.model.table import TableBucket, TableInfo
from fluss_tiering.spark.round.stage import run_stage
from fluss_tiering.storage.embedded.layout import segment_file
from fluss_tiering.storage.fluss.rpc.calls.lake import commit_lake_snapshot, prepare_lake_snapshot
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from needs import needs
from waiting import wait_until

pytestmark = pytest.mark.system


class Embedded:
    """A server with an embedded storage whose logs can be cut at their starts, as a retention would cut them."""

    def __init__(self, folder: Path, spark) -> None:
        self._server = lake_server(folder)
        self._spark = spark

    def start(self) -> Tiering:
        self._server.start()
        self._client = TieringClient(self._server.target)
        return Tiering(self._client, self._spark, self._server.target)

    def cut(self, table: TableInfo, keep: int = 1) -> None:
        """Leave the last batches of each log of a table, while the server is away."""
        self.stop()
        (folder,) = self._server.data_dir.glob(f"tables/{table.path.database}/{table.path.table}-*")
        for log in folder.rglob("log-[0-9]*"):
            (segment,) = log.glob("*.log")
            content = memoryview(segment.read_bytes())
            starts, position = [], 0
            while (header := read_header(content, position)) is not None:
                starts.append((position, header.base_offset))
                position += header.size
            position, base_offset = starts[-keep]
            segment.unlink()
            segment_file(log, base_offset).write_bytes(content[position:])

    def stop(self) -> None:
        self._client.close()
        assert self._server.stop() == 0


@pytest.fixture
@needs("server")
def embedded(tmp_path: Path, spark) -> Iterator[Embedded]:
    running = Embedded(tmp_path, spark)
    yield running
    running.stop()


def lake_ids(tiering: Tiering, table: TableInfo) -> list[int]:
    return sorted(row.id for row in tiering.lake(table))


def refused(tiering: Tiering, table: TableInfo) -> str:
    error = tiering.fail(table, claim_timeout_s=60)
    assert "--skip-missing-log" in error
    return error


# D44
def test_a_log_table_begins_at_its_log_s_start_and_skips_a_later_gap_only_when_told(embedded: Embedded):
    tiering = embedded.start()
    table = tiering.table(primary_key=False, tiered=False, properties=LEGACY)
    for batch in range(3):
        tiering.write(table, named([batch], "row"))
    embedded.cut(table, keep=2)
    tiering = embedded.start()
    tiering.client.alter_table(table.path, {"table.datalake.enabled": "true"})

    tiering.tier(table)
    assert lake_ids(tiering, table) == [1, 2]

    for batch in range(3, 6):
        tiering.write(table, named([batch], "row"))
    embedded.cut(table, keep=1)
    tiering = embedded.start()
    assert "offsets 3 to 4" in refused(tiering, table)
    assert lake_ids(tiering, table) == [1, 2]
    assert tiering.equal(table), "nothing of it can be compared"

    tiering.tier(table, skip_missing_log=True)
    assert lake_ids(tiering, table) == [1, 2, 5]
    assert tiering.equal(table)


# D44
@pytest.mark.parametrize("compacted", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_primary_key_table_is_read_again_from_its_snapshot(
    embedded: Embedded, monkeypatch: pytest.MonkeyPatch, compacted: bool
):
    tiering = embedded.start()
    table = tiering.tiered(named(range(10), "first"), properties=LEGACY)
    tiering.delete(table, [0, 1])
    tiering.write(table, named([2, 20], "second"))
    tiering.write(table, named([3], "third"))
    # Nothing comes after the snapshot, so that the round deletes no rows by position.
    tiering.client.take_kv_snapshots([table.path])
    embedded.cut(table, keep=1)
    tiering = embedded.start()
    compactions = []

    def run(*arguments: Any) -> Any:
        """Run the stage, and let somebody compact the lake table before the commit."""
        results = run_stage(*arguments)
        if compacted and not compactions:
            name = table.lake_catalog_properties["name"]
            every_file = f"table => '{table.path}', options => map('rewrite-all', 'true')"
            compactions.append(tiering.spark.sql(f"CALL {name}.system.rewrite_data_files({every_file})").collect())
        return results

    refused(tiering, table)
    replace_stage(monkeypatch, run)
    tiering.tier(table, skip_missing_log=True)

    assert bool(compactions) is compacted
    expected = {**named(range(3, 10), "first"), **named([2, 20], "second"), **named([3], "third")}
    assert tiering.lake_rows(table) == sorted(expected.items())
    assert tiering.equal(table)


# D44
@pytest.mark.long
def test_a_log_whose_retention_has_passed_on_a_cluster(cluster: Tiering, fluss: FlussClient):
    table = cluster.table(primary_key=False, tiered=False, freshness="1s", properties={"table.log.ttl": "1s"})

    def write_until_cut(first: int) -> tuple[int, int]:
        """Write rows of 1 kB until retention has deleted some of them; return the log's range."""
        ends = [first]

        def is_cut() -> tuple[int, int] | None:
            ids = range(ends[-1], ends[-1] + 100)
            cluster.write(table, {each: f"{each:_<1000}" for each in ids})
            ends.append(ids.stop)
            (info,) = cluster.client.list_buckets([table.path])[table.path]
            return (info.log_start_offset, info.log_end_offset) if info.log_start_offset > first else None

        return wait_until(is_cut)

    def say_tiered_up_to(offset: int) -> None:
        """Tell the cluster that the lake has the log up to an offset, since its retention waits for that."""
        known = cluster.client.lake_snapshot(table.path)
        offsets = {TableBucket(table.table_id, 0): offset}
        path = fluss.call(prepare_lake_snapshot(table.path, table.table_id, offsets, ignore_previous_offsets=True))
        fluss.call(commit_lake_snapshot(table.table_id, known.snapshot_id, path, offsets))

    start, end = write_until_cut(0)
    table = cluster.client.alter_table(table.path, {"table.datalake.enabled": "true"})
    cluster.tier(table, claim_timeout_s=60)
    seen = lake_ids(cluster, table)
    assert seen == list(range(seen[0], end))
    assert seen[0] >= start

    tiered = end
    say_tiered_up_to(2**40)
    _, end = write_until_cut(end)
    say_tiered_up_to(tiered)
    assert f"offsets {tiered} to " in refused(cluster, table)
    assert lake_ids(cluster, table) == seen
    cluster.tier(table, skip_missing_log=True, claim_timeout_s=60)
    rest = [each for each in lake_ids(cluster, table) if each > seen[-1]]
    assert rest == list(range(rest[0], end))
    assert rest[0] > seen[-1] + 1
