"""`fluss_catalog.sys.lake_tiering_status` in Spark SQL, and the other contents of the catalog (S13, S27)."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException, UnsupportedOperationException
from source_support import with_catalog
from spark_support import Tiering

from fluss_tiering.model.lake import MaintenanceReport
from fluss_tiering.model.table import TableInfo
from fluss_tiering.model.tiering import HeartbeatEntry

STATUS = "fluss_catalog.sys.lake_tiering_status"
STATUS_COLUMNS = [
    ("database_name", "string"),
    ("table_name", "string"),
    ("status", "string"),
    ("tiering_epoch", "bigint"),
    ("last_tiered_time", "timestamp"),
    ("last_error", "string"),
    ("last_error_time", "timestamp"),
    ("records_waiting", "bigint"),
    ("waiting_since", "timestamp"),
    ("lag_ms", "bigint"),
    ("next_round_time", "timestamp"),
    ("freshness_ms", "bigint"),
    ("last_maintained_time", "timestamp"),
    ("maintenance_saved_files", "bigint"),
    ("maintenance_rewritten_bytes", "bigint"),
    ("maintenance_expired_snapshots", "bigint"),
    ("maintenance_deleted_files", "bigint"),
]


@pytest.fixture
def catalog(tiering: Tiering) -> Tiering:
    with_catalog(tiering)
    return tiering


def of_table(table: TableInfo) -> str:
    return f"SELECT * FROM {STATUS} WHERE database_name = '{table.path.database}' AND table_name = '{table.path.table}'"


def claim(tiering: Tiering, table: TableInfo) -> HeartbeatEntry:
    (claimed,) = tiering.client.claim_tables([table.path], f"lease of {table.path}", None, "test")
    return HeartbeatEntry(claimed.table_id, claimed.tiering_epoch)


def test_the_status_is_live_at_each_query_in_this_session_and_a_new_one(catalog: Tiering):
    table = catalog.table()
    frame = catalog.spark.sql(of_table(table))
    assert frame.dtypes == STATUS_COLUMNS  # S13
    (scheduled,) = frame.collect()
    assert (scheduled.tiering_epoch, scheduled.last_tiered_time, scheduled.last_error) == (0, None, None)  # S14

    entry = claim(catalog, table)
    (tiering_now,) = catalog.spark.sql(of_table(table)).collect()
    assert (tiering_now.status, tiering_now.tiering_epoch) == ("Tiering", 1)

    catalog.client.heartbeat(failed=[HeartbeatEntry(entry.table_id, entry.tiering_epoch, "no space left")])
    other = catalog.spark.newSession()
    for key in ("", ".server"):
        name = f"spark.sql.catalog.fluss_catalog{key}"
        other.conf.set(name, catalog.spark.conf.get(name))
    for session in (catalog.spark, other):
        (failed,) = session.sql(of_table(table)).collect()
        assert (failed.status, failed.last_error) == ("Failed", "no space left")
    (expected,) = catalog.client.list_tiering_statuses(table.path)
    milliseconds = catalog.spark.sql(f"SELECT unix_millis(last_error_time) AS at FROM ({of_table(table)})").first().at
    assert milliseconds == expected.last_error_time


def test_what_waits_is_shown(catalog: Tiering):  # D27
    table = catalog.table(freshness="1h")
    catalog.write(table, {1: "a", 2: "b"})
    (expected,) = catalog.client.list_tiering_statuses(table.path)
    (row,) = catalog.spark.sql(
        f"SELECT *, unix_millis(waiting_since) AS since, unix_millis(next_round_time) AS due FROM ({of_table(table)})"
    ).collect()
    assert (row.records_waiting, row.since) == (2, expected.waiting_since)
    assert (row.due, row.freshness_ms) == (expected.next_round_time, 3_600_000)
    assert row.lag_ms >= 0


def test_maintenance_is_shown(catalog: Tiering):
    table, other = catalog.table(), catalog.table()
    catalog.client.heartbeat(maintained=[MaintenanceReport(table.table_id, 4, 1000, 2, 9)])
    (expected,) = catalog.client.list_tiering_statuses(table.path)
    figures = [name for name, _ in STATUS_COLUMNS if name.startswith("maintenance_")]

    (row,) = catalog.spark.sql(f"SELECT *, unix_millis(last_maintained_time) AS at FROM ({of_table(table)})").collect()
    (never,) = catalog.spark.sql(of_table(other)).collect()

    assert [row[name] for name in figures] == [4, 1000, 2, 9]
    assert row.at == expected.last_maintained_time
    assert [never[name] for name in (*figures, "last_maintained_time")] == [None] * 5


def test_databases_and_tables_are_listed_and_described(catalog: Tiering):
    table = catalog.table()

    def listed(statement: str, column: str) -> list[str]:
        return [row[column] for row in catalog.spark.sql(statement).collect()]

    # S27
    assert {"sys", "db"} <= set(listed("SHOW DATABASES IN fluss_catalog", "namespace"))
    assert listed("SHOW TABLES IN fluss_catalog.sys", "tableName") == ["lake_tiering_status"]
    assert table.path.table in listed("SHOW TABLES IN fluss_catalog.db", "tableName")
    described = catalog.spark.sql(f"DESCRIBE {STATUS}").collect()
    assert [(row.col_name, row.data_type) for row in described] == STATUS_COLUMNS
    assert listed(f"DESCRIBE fluss_catalog.{table.path}", "col_name") == ["id", "name"]
    with pytest.raises(AnalysisException, match="SCHEMA_NOT_FOUND"):
        catalog.spark.sql("SHOW TABLES IN fluss_catalog.nowhere")
    for path in ("sys.nothing", "db.nothing", "nowhere.nothing", "a.b.c"):
        with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
            catalog.spark.sql(f"SELECT * FROM fluss_catalog.{path}")


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        (f"INSERT INTO {STATUS} SELECT * FROM {STATUS}", AnalysisException),
        (f"DELETE FROM {STATUS}", AnalysisException),
        (f"DROP TABLE {STATUS}", UnsupportedOperationException),
        (f"ALTER TABLE {STATUS} ADD COLUMN x INT", UnsupportedOperationException),
        (f"ALTER TABLE {STATUS} RENAME TO sys.other", UnsupportedOperationException),
        ("CREATE DATABASE fluss_catalog.made_in_spark", UnsupportedOperationException),
        ("DROP DATABASE fluss_catalog.sys CASCADE", UnsupportedOperationException),
    ],
)
def test_changes_are_refused(catalog: Tiering, statement, error):
    # S27
    with pytest.raises(error) as caught:
        catalog.spark.sql(statement)
    words = "does not support" if error is AnalysisException else "can only be read: change tables with `fluss-tiering"
    assert words in str(caught.value)


def test_a_server_that_is_away_is_named(catalog: Tiering):
    catalog.spark.conf.set("spark.sql.catalog.away", catalog.spark.conf.get("spark.sql.catalog.fluss_catalog"))
    catalog.spark.conf.set("spark.sql.catalog.away.server", "127.0.0.1:9")
    with pytest.raises(AnalysisException, match=r"cannot reach the tiering server at 127\.0\.0\.1:9"):
        catalog.spark.sql("SELECT * FROM away.sys.lake_tiering_status").collect()
