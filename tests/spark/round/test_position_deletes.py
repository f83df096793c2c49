"""Rounds that delete by position: every engine reads the rows that were written, after each round."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest
from spark_support import Tiering, command, data_folder, named

import judges
from fluss_tiering.lake.iceberg import commit
from fluss_tiering.lake.iceberg.commit import IcebergCommitter
from fluss_tiering.model.table import TableInfo
from fluss_tiering.spark import application
from fluss_tiering.spark.round.plan import PlanLimits

BY_POSITION = {"table.datalake.enabled": "true", "table.datalake.delete-files": "position"}
FORMATS = pytest.mark.parametrize("version", [2, 3], ids=["position delete files", "deletion vectors"])


def contents(tiering: Tiering, table: TableInfo) -> set[int]:
    """Return the contents of live files as Iceberg numbers them: 0 data, 1 position deletes, 2 equality deletes."""
    return {row.content for row in tiering.spark.sql(f"SELECT content FROM {tiering.name(table)}.files").collect()}


def assert_equal(tiering: Tiering, table: TableInfo, expected: dict[int, str], version: int) -> None:
    rows = sorted(expected.items())
    metadata = judges.newest_metadata(data_folder(table).parent)
    assert tiering.lake_rows(table) == rows
    readers = [judges.DUCKDB, judges.PYICEBERG, *([judges.CLICKHOUSE] if version == 2 else [])]
    for judge in readers:
        found = judges.read(judge, metadata, columns=["id", "name"])
        names = [name.decode() if isinstance(name, bytes) else name for name in found["name"].to_pylist()]
        assert sorted(zip(found["id"].to_pylist(), names, strict=True)) == rows, judge
        for key in (min(expected), max(expected), -1):
            where = judges.Predicate("id", "=", key)
            matched = judges.read(judge, metadata, where, columns=["id"]).num_rows
            assert matched == (key in expected), (judge, key)


def as_version(tiering: Tiering, table: TableInfo, version: int) -> None:
    if version > 2:
        tiering.spark.sql(f"ALTER TABLE {tiering.name(table)} SET TBLPROPERTIES ('format-version' = '{version}')")


@pytest.mark.sampled(1)
@FORMATS
def test_rounds_of_changes_are_read_by_every_engine(tiering: Tiering, version: int) -> None:
    table = tiering.table(num_buckets=2, properties=BY_POSITION)
    chance = random.Random(version)
    expected = named(range(100), "first")
    tiering.round(table, expected)
    as_version(tiering, table, version)
    for step in range(6):
        changed = named(chance.sample(range(140), 30), f"step {step}")
        gone = chance.sample(sorted(expected), 7)
        tiering.write(table, changed)
        tiering.delete(table, gone)
        expected = {key: value for key, value in {**expected, **changed}.items() if key not in gone}

        tiering.tier(table)

        assert contents(tiering, table) == {0, 1}
        assert_equal(tiering, table, expected, version)


def tiered(tiering: Tiering, version: int, *, rounds: int = 2) -> tuple[TableInfo, dict[int, str]]:
    """Return a table with the keys 0 to 49, each changed in one of the rounds, and its rows."""
    table = tiering.table(properties=BY_POSITION)
    expected = named(range(50), "first")
    tiering.round(table, expected)
    as_version(tiering, table, version)
    for step in range(1, rounds):
        changed = named(range(step, 50, rounds), f"step {step}")
        tiering.write(table, changed)
        expected.update(changed)
        tiering.tier(table)
    return table, expected


def change(tiering: Tiering, table: TableInfo, expected: dict[int, str], name: str) -> None:
    """Change some rows of each round before, add a row, and delete one."""
    changed = named([*range(0, 50, 7), 1000], name)
    tiering.write(table, changed)
    tiering.delete(table, [3])
    expected.update(changed)
    expected.pop(3, None)


def position_delete_files(tiering: Tiering, table: TableInfo) -> list[int]:
    """Return the number of positions in each live delete file."""
    files = tiering.spark.sql(f"SELECT record_count FROM {tiering.name(table)}.delete_files ORDER BY record_count")
    return [row.record_count for row in files.collect()]


def test_every_engine_reads_data_files_with_several_large_delete_files(
    tiering: Tiering, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tiering.table(properties=BY_POSITION)
    expected = named(range(60_000), "first")
    tiering.round(table, expected)
    # Each round changes other keys, and fewer of them than the one before.
    for step, keys in enumerate([range(16_000), range(20_000, 34_000), range(40_000, 52_000), range(55_000, 55_100)]):
        changed = named(keys, f"step {step}")
        tiering.write(table, changed)
        tiering.delete(table, [keys[0]])
        expected.update(changed)
        del expected[keys[0]]
        tiering.tier(table)
    # The files of the first three rounds have stayed as they were.
    assert position_delete_files(tiering, table) == [100, 12_000, 14_000, 16_000]
    assert_equal(tiering, table, expected, 2)
    assert command(tiering, monkeypatch)("compact", str(table.path), "--server", tiering.target) == 0
    assert position_delete_files(tiering, table) == []
    assert_equal(tiering, table, expected, 2)


@pytest.mark.long
@FORMATS
def test_a_delete_file_that_is_gone_fails_the_round_and_is_named(tiering: Tiering, version: int) -> None:
    table, expected = tiered(tiering, version)
    (deletes,) = [Path(urlparse(name).path) for name in delete_files(tiering, table)]
    away = deletes.rename(deletes.with_name("away"))
    tiering.write(table, named([0, 2], "after"))
    expected.update(named([0, 2], "after"))
    (result,) = tiering.tier_all(table)
    assert result.error is not None
    assert result.error.startswith("position delete file missing: "), result.error
    assert deletes.name in result.error
    away.rename(deletes)
    tiering.tier(table)
    assert_equal(tiering, table, expected, version)


def delete_files(tiering: Tiering, table: TableInfo) -> list[str]:
    rows = tiering.spark.sql(f"SELECT DISTINCT file_path FROM {tiering.name(table)}.delete_files").collect()
    return [row.file_path for row in rows]


def compact(tiering: Tiering, table: TableInfo) -> None:
    catalog = table.lake_catalog_properties["name"]
    tiering.spark.sql(
        f"CALL {catalog}.system.rewrite_data_files(table => '{table.path}', options => map('rewrite-all', 'true'))"
    )


def assert_no_failure(tiering: Tiering, table: TableInfo) -> None:
    (status,) = tiering.client.list_tiering_statuses(table.path)
    assert (status.consecutive_failures, status.interruptions) == (0, 0)


# E3
@pytest.mark.sampled(1)
@FORMATS
def test_rounds_land_whenever_somebody_rewrites_all_files_meanwhile(
    tiering: Tiering, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, expected = tiered(tiering, version)
    stage, stages = IcebergCommitter._stage, []
    left = 0

    def staged(*arguments: Any) -> Any:
        """Stage a commit, and rewrite the files whose rows it deletes at the last moment."""
        nonlocal left
        stages.append(left)
        transaction = stage(*arguments)
        if left:
            left -= 1
            compact(tiering, table)
        return transaction

    monkeypatch.setattr(IcebergCommitter, "_stage", staged)
    for rewrites in (1, 3):
        change(tiering, table, expected, f"beside {rewrites} rewrites")
        tiering.write(table, named([3], f"back {rewrites}"))
        expected.update(named([3], f"back {rewrites}"))
        left = rewrites
        tiering.tier(table)
        assert left == 0
        assert_no_failure(tiering, table)
        assert contents(tiering, table) == {0, 1}
        assert_equal(tiering, table, expected, version)
    assert len(stages) == 2 + 1 + 3


@pytest.mark.sampled(1)
@FORMATS
def test_rows_are_deleted_in_more_new_files_than_a_row_delta_takes(
    tiering: Tiering, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that are appended after the row delta would not be seen by its deletes."""
    table = tiering.table(properties=BY_POSITION)
    expected = named(range(50), "first")
    tiering.round(table, expected)
    as_version(tiering, table, version)
    for step in range(5):
        tiering.write(table, named([step, 7, 100 + step], f"piece {step}"))
        expected.update(named([step, 7, 100 + step], f"piece {step}"))
    monkeypatch.setattr(commit, "_MAX_DATA_FILES", 1)
    monkeypatch.setattr(application, "PlanLimits", lambda **given: PlanLimits(**given, change_piece_bytes=1))
    tiering.tier(table)
    assert_equal(tiering, table, expected, version)
