"""A table with a TIME column, which Spark opens from no Iceberg catalog, is expired and cleaned."""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Final
from urllib.parse import urlparse

import pyarrow as pa
import pytest
from maintenance_support import expire
from spark_support import Tiering, command, lake_server, named

import judges
from fluss_tiering.client import TieringClient
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, DataType, TableDescriptor, TableInfo, TablePath, WriteKind
from fluss_tiering.spark.audit.clean import clean_table
from fluss_tiering.spark.maintenance.compact import Compaction, compact_table
from fluss_tiering.spark.maintenance.maintain import Maintenance, maintain_table
from fluss_tiering.spark.maintenance_application import run as run_application
from fluss_tiering.spark.maintenance_options import CompactOptions, ExpireOptions, MaintainOptions, VerifyOptions

OPTIONS = {
    "table.datalake.enabled": "true",
    "table.datalake.freshness": "3min",
    # Our own tasks compact a table without equality deletes: see test_rewritten_files.py.
    "table.datalake.delete-files": "equality",
}


def ids_in_lake(tiering: Tiering, table: TableInfo) -> list[int]:
    lake = tiering.lake_table(table)
    metadata = lake.java_table.operations().current().metadataFileLocation()
    return sorted(judges.read(judges.DUCKDB, metadata, columns=["id"]).column("id").to_pylist())


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", ["TIME(3)", "ARRAY<ROW<t TIME(3)>>"])
def test_a_table_with_times_is_maintained_as_far_as_spark_can(tiering: Tiering, kind: str):  # D46
    columns = (Column("id", DataType.parse("INT NOT NULL")), Column("t", DataType.parse(kind)))
    path = TablePath("times", "plain" if kind == "TIME(3)" else "nested")
    table = tiering.client.create_table(path, TableDescriptor(columns, ("id",), ("id",), 1, OPTIONS))
    noon = dt.time(12, 0, 0, 1000)
    for ids in ([1, 2], [2, 3], [4]):
        rows = [{"id": each, "t": noon if kind == "TIME(3)" else [{"t": noon}]} for each in ids]
        batch = pa.RecordBatch.from_pylist(rows, schema=arrow_schema(columns))
        assert list(tiering.client.write_rows(table.path, WriteKind.UPSERT, [batch])) == [len(ids)]
        tiering.tier(table)
    folder = Path(urlparse(table.lake_catalog_properties["warehouse"]).path, *str(table.path).split("."), "data")
    stray, young = folder / "stray.parquet", folder / "young.parquet"
    for each in (stray, young):
        each.touch()
    os.utime(stray, (0, 0))

    done = expire(tiering, table, retain_last=1)
    assert (done.expired, done.kept) == (2, 1)
    assert done.deleted_files >= 2
    cleaned = clean_table(tiering.spark, table, grace=timedelta(days=1), delete=False)
    assert cleaned.error is None
    assert [Path(urlparse(each.location).path) for each in cleaned.orphans] == [stray]
    assert stray.exists()
    assert len(clean_table(tiering.spark, table, grace=timedelta(days=1), delete=True).deleted) == 1
    assert not stray.exists()
    assert young.exists()
    assert ids_in_lake(tiering, table) == [1, 2, 3, 4]

    refused = compact_table(tiering.spark, table)
    assert refused.error is not None
    assert f"has the column 't' of type {DataType.parse(kind)}, which Spark cannot read from Iceberg" in refused.error
    with pytest.raises(FlussTieringError, match="which Spark cannot read from Iceberg") as caught:
        tiering.audit(table)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


DATA: Final = "write.target-file-size-bytes"
MANIFESTS: Final = "commit.manifest.target-size-bytes"


def compacted(tiering: Tiering, table: TableInfo) -> Compaction:
    return compact_table(tiering.spark, table)


def maintained(tiering: Tiering, table: TableInfo) -> Maintenance:
    return maintain_table(tiering.client, tiering.spark, table)


def table_with(tiering: Tiering, key: str, value: str) -> TableInfo:
    table = tiering.table(properties={"table.datalake.delete-files": "position"})
    for number in range(7):
        tiering.round(table, named(range(5 * number, 5 * number + 10), "row"))
    tiering.spark.sql(f"ALTER TABLE {tiering.name(table)} SET TBLPROPERTIES ('{key}' = '{value}')")
    return table


@pytest.mark.slow
@pytest.mark.parametrize(("key", "value"), [(DATA, "9223372036854775807"), (MANIFESTS, "0"), (MANIFESTS, "-1")])
@pytest.mark.parametrize("keep", [compacted, maintained])
@pytest.mark.sampled(1)
def test_a_size_that_is_none_is_refused_in_words(
    tiering: Tiering, key: str, value: str, keep: Callable[[Tiering, TableInfo], Compaction | Maintenance]
) -> None:
    table = table_with(tiering, key, value)
    expected = tiering.lake_rows(table)
    error = keep(tiering, table).error
    assert error is not None
    assert f"the property {key} of the lake table" in error
    assert f"is '{value}': expected a whole number" in error
    assert "UNSET TBLPROPERTIES" in error
    assert tiering.lake_rows(table) == expected


def sentence(path: object) -> str:
    return (
        "nothing of the table is in the lake: no round has tiered it yet, or its lake table was dropped or renamed; "
        f"run `fluss-tiering tier {path}` first, which also says how to bring a missing lake table back"
    )


EVERY_COMMAND = [["verify"], ["compact"], ["expire"], ["clean"], ["maintain"], ["maintain", "--dry-run"]]


def test_a_named_table_is_an_error(tiering: Tiering, monkeypatch, capsys):
    table = tiering.table()
    tiering.write(table, named(range(3), "row"))
    run = command(tiering, monkeypatch)
    for arguments in EVERY_COMMAND:
        assert run(*arguments, str(table.path), "--server", tiering.target) == 1, arguments
        printed = capsys.readouterr()
        assert f"{table.path}: {sentence(table.path)}\n" in printed.out, arguments
        assert "no orphan files" not in printed.out, arguments
        assert "skipped" not in printed.err, arguments
        assert run(*arguments, str(table.path), "--json", "--server", tiering.target) == 1, arguments
        (told,) = json.loads(capsys.readouterr().out)
        assert told["error"] == sentence(table.path), arguments


@pytest.mark.system
def test_a_table_that_nobody_named_is_skipped(tmp_path, spark, monkeypatch, capsys):
    # The server is not the shared one: these commands go over all of its tables.
    server = lake_server(tmp_path).start()
    try:
        with TieringClient(server.target) as client:
            alone = Tiering(client, spark, server.target)
            never, tiered = (alone.table(properties={"table.datalake.auto-compaction": "true"}) for _ in range(2))
            alone.write(tiered, named(range(3), "row"))
            alone.tier(tiered)
            run = command(alone, monkeypatch)
            for arguments in (["clean"], ["maintain"], ["maintain", "--all"], ["maintain", "--all", "--dry-run"]):
                assert run(*arguments, "--server", server.target) == 0, arguments
                printed = capsys.readouterr()
                assert f"{never.path}: skipped: {sentence(never.path)}\n" in printed.err, arguments
                assert sentence(never.path) not in printed.out, arguments
                assert f"{tiered.path}: skipped" not in printed.err, arguments
    finally:
        server.stop()


def test_a_lake_table_without_snapshots_is_empty(tiering: Tiering, monkeypatch, capsys):
    table = tiering.table()
    tiering.tier(table)
    assert tiering.snapshots(table) == []
    run = command(tiering, monkeypatch)
    for arguments in EVERY_COMMAND:
        assert run(*arguments, str(table.path), "--server", tiering.target) == 0, arguments
        printed = capsys.readouterr()
        assert "nothing of the table is in the lake" not in printed.out + printed.err, arguments
        assert run(*arguments, str(table.path), "--json", "--server", tiering.target) == 0, arguments
        (told,) = json.loads(capsys.readouterr().out)
        assert told["error"] is None if "error" in told else arguments == ["clean"], arguments
    for options in (CompactOptions, ExpireOptions, VerifyOptions, MaintainOptions):
        assert run_application(options(tiering.target, (table.path,)), tiering.spark) == {}, options
    # The rows that are there now were not compared with anything.
    tiering.write(table, named(range(3), "row"))
    assert run("verify", str(table.path), "--server", tiering.target) == 1
    assert f"{table.path}: {sentence(table.path)}\n" in capsys.readouterr().out


def test_the_application_has_the_same_rule(tiering: Tiering):
    table = tiering.table(properties={"table.datalake.auto-compaction": "true"})
    for options in (CompactOptions, ExpireOptions, VerifyOptions, MaintainOptions):
        failed = run_application(options(tiering.target, (table.path,)), tiering.spark)
        assert failed == {str(table.path): sentence(table.path)}, options
    dry_run = MaintainOptions(tiering.target, (table.path,), dry_run=True)
    assert run_application(dry_run, tiering.spark) == {str(table.path): sentence(table.path)}
    assert str(table.path) not in run_application(MaintainOptions(tiering.target, ()), tiering.spark)
