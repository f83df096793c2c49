"""An audit of tables whose rows expire in Fluss without a changelog.

No server here has `table.kv.ttl`. Tables of the embedded storage are audited as if they had it, and rows expire as in
Fluss: they vanish from RocksDB, and nothing is in the log.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from fluss_tables import descriptor, new_table_of_later, rows, snapshot_behind, upsert
from rocksdict import Options, Rdict
from spark_support import Tiering, command, named

from fluss_tiering.client import TieringClient
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo
from fluss_tiering.spark.audit.report import Difference, TableAudit
from fluss_tiering.storage.fluss.rpc.client import FlussClient


def expiring(table: TableInfo) -> TableInfo:
    properties = {**table.descriptor.properties, "table.kv.ttl": "1 h"}
    return replace(table, descriptor=replace(table.descriptor, properties=properties))


def found(audit: TableAudit) -> list[tuple]:
    return sorted((each.kind, *each.key.values(), each.source_rows, each.lake_rows) for each in audit.differences)


def expired(audit: TableAudit) -> int:
    return sum(bucket.expired_rows for bucket in audit.buckets)


def expire(tiering: Tiering, table: TableInfo, ids: Iterable[int]) -> None:
    """Remove rows from the latest KV snapshots, as if RocksDB had dropped them while it compacted."""
    ids = set(ids)
    data_dir = Path(tiering.client.describe_storage().data_dir)
    for info in tiering.client.list_buckets([table.path])[table.path]:
        folder = data_dir / info.latest_kv_snapshot.path
        with Rdict(str(folder), Options(raw_mode=True), {"state": Options(raw_mode=True)}) as database:
            for key in list(database.keys()):
                if int.from_bytes(key, "little") in ids:
                    del database[key]
                    ids.discard(int.from_bytes(key, "little"))
            database.flush()
    assert not ids


@pytest.fixture
def table(tiering: Tiering) -> TableInfo:
    """Return a table with ids from 0 to 99 that was tiered, snapshots with all of them, and changes after these."""
    made = tiering.tiered(named(range(100), "first"), num_buckets=3)
    tiering.client.take_kv_snapshots([made.path])
    tiering.write(made, named(range(10), "second"))
    tiering.delete(made, [50, 51])
    tiering.tier(made)
    return made


@pytest.mark.long
def test_rows_that_expired_are_counted_and_are_no_difference(tiering: Tiering, table: TableInfo) -> None:
    assert tiering.audit(expiring(table)).equal
    expire(tiering, table, [3, 70, 71, 72])

    audit = tiering.audit(expiring(table))

    assert audit.equal
    assert not audit.differences
    # The row 3 was written again after the snapshot.
    assert (expired(audit), audit.kv_ttl) == (3, "1 h")
    assert sum(bucket.source.rows for bucket in audit.buckets) == 95
    assert sum(bucket.lake.rows for bucket in audit.buckets) == 95
    # A table whose rows do not expire is read from its log, which has them all.
    assert tiering.audit(table) == replace(audit, kv_ttl=None, buckets=tiering.audit(table).buckets)


def test_rows_that_cannot_have_expired_are_differences(tiering: Tiering, table: TableInfo) -> None:
    expire(tiering, table, [70, 71])
    name = tiering.name(table)
    # Rows that Fluss has: one is missing in the lake, one is another, one is twice.
    tiering.spark.sql(f"DELETE FROM {name} WHERE id = 60")
    tiering.spark.sql(f"UPDATE {name} SET name = 'changed' WHERE id = 5")
    tiering.spark.sql(f"INSERT INTO {name} SELECT * FROM {name} WHERE id = 7")
    # One that the log deleted came back, and one that expired is twice.
    tiering.spark.sql(f"INSERT INTO {name} SELECT 50, name FROM {name} WHERE id = 5")
    tiering.spark.sql(f"INSERT INTO {name} SELECT * FROM {name} WHERE id = 71")

    audit = tiering.audit(expiring(table))

    assert not audit.equal
    assert found(audit) == [
        (Difference.CHANGED, 5, 1, 1),
        (Difference.EXTRA, 50, 0, 1),
        (Difference.EXTRA, 71, 0, 2),
        (Difference.MISSING, 60, 1, 0),
        (Difference.REPEATED, 7, 1, 2),
    ]
    assert expired(audit) == 1


def test_without_a_snapshot_nothing_has_expired(tiering: Tiering, monkeypatch: pytest.MonkeyPatch) -> None:
    list_buckets = TieringClient.list_buckets

    def without_snapshots(client: TieringClient, paths: list) -> dict:
        found = list_buckets(client, paths)
        return {path: [replace(info, latest_kv_snapshot=None) for info in infos] for path, infos in found.items()}

    table = tiering.tiered(named(range(5), "row"))
    name = tiering.name(table)
    tiering.spark.sql(f"INSERT INTO {name} SELECT 4711, name FROM {name} WHERE id = 1")
    assert expired(tiering.audit(expiring(table))) == 1

    monkeypatch.setattr(TieringClient, "list_buckets", without_snapshots)
    audit = tiering.audit(expiring(table))

    assert found(audit) == [(Difference.EXTRA, 4711, 0, 1)]
    assert expired(audit) == 0


def test_a_snapshot_that_is_newer_than_the_lake_cannot_be_compared(tiering: Tiering) -> None:
    table = tiering.tiered(named(range(5), "row"))
    tiering.write(table, named(range(5, 8), "row"))
    tiering.client.take_kv_snapshots([table.path])
    with pytest.raises(FlussTieringError, match=r"rows expire, and .* tier the table and verify it again") as raised:
        tiering.audit(expiring(table))
    assert raised.value.code is ErrorCode.LOG_OFFSET_OUT_OF_RANGE
    tiering.tier(table)
    assert tiering.audit(expiring(table)).equal


@pytest.mark.long
def test_the_command_says_that_rows_expire(
    cluster: Tiering, fluss: FlussClient, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = command(cluster, monkeypatch)
    made = new_table_of_later(fluss, descriptor(primary_key=True, tiered=True), table__kv__ttl="7 d")
    end = upsert(fluss, made, rows(0, 10))
    snapshot_behind(fluss, made, end)
    cluster.tier(made)
    name = cluster.name(made)
    said = (
        "Rows of this table expire in Fluss without a changelog (table.kv.ttl=7 d), and the lake keeps them. Rows that "
        "are only in the lake and may have expired:"
    )
    assert run("verify", str(made.path), "--server", cluster.target) == 0
    assert f"{said} 0." in " ".join(capsys.readouterr().out.split())

    cluster.spark.sql(f"INSERT INTO {name} SELECT 4711, name, __bucket, __offset, __timestamp FROM {name} WHERE id = 1")
    assert run("verify", str(made.path), "--server", cluster.target) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert f"{said} 1." in printed
    assert "4711" not in printed
    assert run("verify", str(made.path), "--server", cluster.target, "--json") == 0
    (audit,) = json.loads(capsys.readouterr().out)
    assert (audit["equal"], audit["kv_ttl"], audit["differences"]) == (True, "7 d", [])
    assert [(each["lake_rows"], each["expired_rows"]) for each in audit["buckets"]] == [(10, 1)]
