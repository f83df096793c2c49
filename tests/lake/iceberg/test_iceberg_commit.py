"""Commits of rounds in a real Iceberg catalog, and the fence that refuses those of stale drivers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlparse

import pytest
from lake_support import run_after_staging
from py4j.protocol import Py4JError
from table_support import (
    COLUMNS,
    PATH,
    commit_of,
    compact,
    exists,
    insert,
    name,
    piece,
    rows,
)

from fluss_tiering.lake.iceberg import commit as commits
from fluss_tiering.lake.iceberg.commit import IcebergCommitter
from fluss_tiering.lake.names import round_file_name
from fluss_tiering.lake.protocol import LakeTableSize
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, DataType, TableBucket, TableDescriptor, TableInfo


def test_a_later_piece_s_deletes_apply_to_the_earlier_ones_of_the_same_commit(spark, catalogs, keyed):
    lake = catalogs.open_table(keyed)
    first, second = piece(lake, {1: "a", 2: "a", 3: "a"}), piece(lake, {2: "b"}, delete=True)

    snapshot_id = lake.commit([first, second], commit_of(4))

    assert rows(spark, keyed) == [(1, "a"), (2, "b"), (3, "a")]
    assert catalogs.open_table(keyed).base() == snapshot_id


def test_the_snapshot_says_what_fluss_and_we_say(spark, catalogs, keyed):
    lake = catalogs.open_table(keyed)
    commit = commit_of(4)
    lake.commit([piece(lake, {1: "a"}), piece(lake, {1: "b"}, delete=True)], commit)

    first, last = (
        row.summary for row in spark.sql(f"SELECT summary FROM {name(keyed)}.snapshots ORDER BY committed_at").collect()
    )
    assert last["commit-user"] == "__fluss_lake_tiering"
    assert last["fluss-offsets"] == "/offsets/1"
    assert last["fluss-tiering.commit-id"] == first["fluss-tiering.commit-id"] == commit.commit_id
    assert (last["fluss-tiering.table-id"], last["fluss-tiering.epoch"]) == ("1", "5")
    # Only the last snapshot of a commit holds all of its rows, so only that one may name its offsets.
    assert "commit-user" not in first
    assert "fluss-tiering.offsets" not in first


@pytest.mark.parametrize("has_base", [False, True])
@pytest.mark.parametrize("moment", ["before it stages", "between staging and commit"])
@pytest.mark.parametrize("successor", ["append", "delete", "nothing but offsets", "rows of somebody else"])
def test_a_stale_driver_loses_and_its_files_go(spark, catalogs, keyed, monkeypatch, has_base, moment, successor):
    """The fence, wherever the old driver was stopped. It has two pieces, so that the second builds on the first."""
    if has_base:
        lake = catalogs.open_table(keyed)
        lake.commit([piece(lake, {1: "base"})], commit_of(1))
    stale, fresh = catalogs.open_table(keyed), catalogs.open_table(keyed)
    pieces = [piece(stale, {1: "stale"}, delete=has_base), piece(stale, {2: "stale"}, delete=True)]

    def succeed() -> None:
        if successor == "append":
            fresh.commit([piece(fresh, {3: "fresh"})], commit_of(2))
        elif successor == "delete":
            fresh.commit([piece(fresh, {1: "gone"}, delete=True)], commit_of(2))
        elif successor == "nothing but offsets":
            fresh.commit([], commit_of(2))
        else:
            insert(spark, keyed, 3)

    if moment == "before it stages":
        succeed()
    else:
        run_after_staging(monkeypatch, succeed)
    with pytest.raises(FlussTieringError) as raised:
        stale.commit(pieces, commit_of(9))

    assert raised.value.code is ErrorCode.LAKE_CONFLICT
    assert (
        f"expected nothing after {f'snapshot {stale.base()}' if has_base else 'no snapshot'};" in raised.value.message
    )
    assert "stale" not in {value for _, value in rows(spark, keyed)}
    assert not any(exists(file) for each in pieces for file in each)


@pytest.fixture
def few_files():
    """Let a row delta or a manifest hold two data files. `monkeypatch` is undone in the middle of these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commits, "_MAX_DATA_FILES", 2)
        yield patch


# D52: of very many files, all but some are appended by manifests after the row delta that is their fence
@pytest.mark.parametrize("moment", ["before it stages", "between staging and commit"])
@pytest.mark.parametrize("successor", ["append", "delete", "nothing but offsets"])
def test_a_stale_driver_with_many_files_loses_and_its_manifests_go(
    catalogs, spark, keyed, monkeypatch, few_files, moment, successor
):
    lake = catalogs.open_table(keyed)
    lake.commit([piece(lake, {1: "base"})], commit_of(1))
    stale, fresh = catalogs.open_table(keyed), catalogs.open_table(keyed)
    pieces = [
        [file for key in range(1, 6) for file in piece(stale, {key: "stale"}, delete=True)],
        [file for key in range(4, 8) for file in piece(stale, {key: "stale"}, delete=True)],
    ]

    manifests = Path(urlparse(stale.metadata_location()).path)
    written: list[bool] = []

    def succeed() -> None:
        done = {"append": [piece(fresh, {3: "fresh"})], "delete": [piece(fresh, {1: "gone"}, delete=True)]}
        written.append(bool(list(manifests.glob("*-files-*.avro"))))
        fresh.commit(done.get(successor, []), commit_of(2))

    if moment == "before it stages":
        succeed()
    else:
        run_after_staging(monkeypatch, succeed)
    with pytest.raises(FlussTieringError) as raised:
        stale.commit(pieces, commit_of(9))

    assert raised.value.code is ErrorCode.LAKE_CONFLICT
    assert "stale" not in {value for _, value in rows(spark, keyed)}
    assert not any(exists(file) for each in pieces for file in each)
    assert written.pop() == (moment == "between staging and commit")
    assert list(manifests.glob("*-files-*.avro")) == []


# D52
@pytest.mark.usefixtures("few_files")
@pytest.mark.parametrize("compacted", [False, True])
def test_many_files_are_committed_by_manifests_in_the_order_of_their_pieces(
    spark, catalogs, keyed, monkeypatch, compacted
):
    lake = catalogs.open_table(keyed)
    for key in (90, 91):
        lake = catalogs.open_table(keyed)
        known = lake.commit([piece(lake, {key: "base"})], commit_of(1))
    lake = catalogs.open_table(keyed)
    first = [file for key in range(7) for file in piece(lake, {key: "first"})]
    second = [file for key in (1, 5, 6, 90) for file in piece(lake, {key: "second"}, delete=True)]
    commit = commit_of(2)
    if compacted:
        run_after_staging(monkeypatch, lambda: compact(spark, keyed))

    landed = lake.commit([lake.packed(first), lake.packed(second)], commit)

    expected = {**dict.fromkeys(range(7), "first"), **dict.fromkeys((1, 5, 6, 90), "second"), 91: "base"}
    assert rows(spark, keyed) == sorted(expected.items())
    opened = catalogs.open_table(keyed)
    assert opened.base() == landed
    assert opened.unregistered_commit(known).commit == commit
    # The files of each piece are validated, and none of an append's snapshots names the offsets but the last.
    said = [row.summary for row in spark.sql(f"SELECT summary FROM {name(keyed)}.snapshots").collect()]
    of_commit = [each for each in said if each.get("fluss-tiering.commit-id") == commit.commit_id]
    assert len(of_commit) == 4
    assert sum("fluss-tiering.offsets" in each for each in of_commit) == 1
    files = spark.sql(
        f"SELECT sum(file_size_in_bytes) AS size, sum(record_count) AS n FROM {name(keyed)}.files"
    ).first()
    assert opened.size(landed).file_bytes == files.size
    assert spark.sql(f"SELECT count(*) AS n FROM {name(keyed)} WHERE k = 6 AND v = 'second'").first().n == 1


# D52
@pytest.mark.usefixtures("few_files")
def test_the_manifests_of_a_commit_are_not_those_of_another(spark, catalogs, log):
    for first in (0, 3):
        lake = catalogs.open_table(log)
        lake.commit([[file for key in range(first, first + 3) for file in piece(lake, {key: "a"})]], commit_of(first))
    assert rows(spark, log) == [(key, "a") for key in range(6)]


# D52
@pytest.mark.usefixtures("few_files")
def test_the_files_of_manifests_count_in_the_size_of_the_table(catalogs, keyed):
    lake = catalogs.open_table(keyed)
    files = [file for key in range(3) for file in piece(lake, {key: "a"})]
    assert lake.size(lake.commit([files], commit_of(1))) == LakeTableSize(sum(file.size_bytes for file in files), 3)


@pytest.mark.parametrize("has_base", [False, True])
def test_a_commit_that_cannot_be_prepared_is_no_conflict_and_its_files_go(catalogs, keyed, has_base):
    lake = catalogs.open_table(keyed)
    if has_base:
        lake.commit([piece(lake, {1: "a"})], commit_of(1))
        lake = catalogs.open_table(keyed)
    (file,) = piece(lake, {2: "a"})
    not_a_long = replace(file.metrics, column_sizes={1: 1 << 70})

    with pytest.raises(FlussTieringError, match="could not prepare the commit to the lake table") as raised:
        lake.commit([[replace(file, metrics=not_a_long)]], commit_of(2))

    assert raised.value.code is ErrorCode.STORAGE
    assert not exists(file)


def test_a_compaction_between_staging_and_commit_is_no_conflict(spark, catalogs, keyed, monkeypatch):
    lake = catalogs.open_table(keyed)
    lake.commit([piece(lake, {1: "a", 2: "a"}), piece(lake, {3: "a"})], commit_of(3))
    lake = catalogs.open_table(keyed)
    pieces = [piece(lake, {1: "b"}, delete=True), piece(lake, {1: "c", 4: "c"}, delete=True)]
    run_after_staging(monkeypatch, lambda: compact(spark, keyed))

    lake.commit(pieces, commit_of(6))

    assert rows(spark, keyed) == [(1, "c"), (2, "a"), (3, "a"), (4, "c")]


def test_files_are_kept_while_the_outcome_is_open(catalogs, keyed, monkeypatch):
    lake = catalogs.open_table(keyed)
    files = piece(lake, {1: "a"})

    stage = IcebergCommitter._stage

    def unsent(*args: Any) -> SimpleNamespace:
        def fail() -> None:
            raise Py4JError("the JVM is away")

        stage(*args)
        return SimpleNamespace(commit=fail)

    monkeypatch.setattr(IcebergCommitter, "_stage", unsent)
    with pytest.raises(FlussTieringError, match="its files are kept") as raised:
        lake.commit([files], commit_of(1))

    assert raised.value.code is ErrorCode.STORAGE
    assert all(exists(file) for file in files)


# S21: a range without rows still advances the offsets
def test_a_commit_without_files_says_its_offsets(spark, catalogs, keyed):
    lake = catalogs.open_table(keyed)
    base = lake.commit([piece(lake, {1: "a"})], commit_of(1))
    lake = catalogs.open_table(keyed)
    commit = commit_of(7)

    lake.commit([[], []], commit)

    (file,) = spark.sql(f"SELECT file_path FROM {name(keyed)}.files WHERE record_count = 0").collect()
    name_of_round = round_file_name(0, commit.tiering_epoch, commit.commit_id)
    assert file.file_path == f"{lake.piece_location(0, name_of_round)}-no-rows.parquet"
    found = catalogs.open_table(keyed).unregistered_commit(base)
    assert found is not None
    assert found.commit.log_end_offsets == {TableBucket(1, 0): 7}
    assert rows(spark, keyed) == [(1, "a")]


def test_a_commit_without_files_to_a_partition_is_in_its_folder(spark, catalogs, lake_properties):
    columns = (*COLUMNS, Column("day", DataType.parse("STRING NOT NULL")))
    descriptor = TableDescriptor(columns, num_buckets=2, partition_keys=("day",))
    table = TableInfo(1, PATH, 1, descriptor, 0, lake_properties)
    lake = catalogs.open_table(table)

    lake.commit([], commit_of(7), ("mon",))

    (file,) = spark.sql(f"SELECT file_path, partition FROM {name(table)}.files").collect()
    assert file.file_path.startswith(f"{lake.data_location()}/day=mon/")
    assert tuple(file.partition) == ("mon", 0)
