"""Lake tables in a real Iceberg catalog are created, opened, written, committed and fenced."""

from __future__ import annotations

import datetime as dt
import json
import time
import uuid
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from urllib.parse import urlparse

import numpy as np
import pyarrow as pa
import pytest
from py4j.protocol import Py4JError

from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.lake.iceberg import commit as commits
from fluss_tiering.lake.iceberg import summary
from fluss_tiering.lake.iceberg import table as table_module
from fluss_tiering.lake.iceberg.catalog import IcebergCatalogs
from fluss_tiering.lake.iceberg.commit import IcebergCommitter
from fluss_tiering.lake.iceberg.metadata.file_io import file_io_properties
from fluss_tiering.lake.iceberg.metadata.offsets_file import from_json, to_json
from fluss_tiering.lake.object_store import credentials_expire_ms
from fluss_tiering.lake.protocol import LakeCommit, LakeTableSize
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, DataType, TableBucket, TableDescriptor, TableInfo, TablePath

# ruff: noqa: DTZ001 - a TIMESTAMP has no time zone

PATH = TablePath("db", "t")
COLUMNS = (Column("k", DataType.parse("INT NOT NULL")), Column("v", DataType.parse("STRING")))
# One bucket: every key then is where Iceberg's own transform puts it.
KEYED = TableDescriptor(COLUMNS, ("k",), ("k",), 1, {"table.datalake.freshness": "3min"})
LOG = TableDescriptor(COLUMNS, num_buckets=2)


@pytest.fixture
def keyed(lake_properties) -> TableInfo:
    return TableInfo(1, PATH, 1, KEYED, 0, lake_properties)


@pytest.fixture
def log(lake_properties) -> TableInfo:
    return TableInfo(1, PATH, 1, LOG, 0, lake_properties)


@pytest.fixture
def catalogs(spark) -> IcebergCatalogs:
    return IcebergCatalogs(spark)


def name(table: TableInfo) -> str:
    return f"{table.lake_catalog_properties['name']}.{table.path}"


def piece(lake, rows: dict[int, str], *, delete: bool = False, bucket: int = 0, location: str | None = None):
    writer = lake.file_writer().open_piece(bucket, location or lake.piece_location(bucket, str(uuid.uuid4())), 0)
    batch = pa.RecordBatch.from_pydict({"k": list(rows), "v": list(rows.values())}, schema=arrow_schema(COLUMNS))
    stamps = np.arange(len(rows))
    writer.write(batch, stamps, stamps)
    if delete:
        writer.delete(batch.select(["k"]))
    return writer.close()


def commit_of(end: int, table_id: int = 1) -> LakeCommit:
    return LakeCommit(table_id, 5, str(uuid.uuid4()), "/offsets/1", {TableBucket(table_id, 0): end})


def rows(spark, table: TableInfo) -> list[tuple]:
    return sorted(tuple(row) for row in spark.sql(f"SELECT k, v FROM {name(table)}").collect())


def exists(file) -> bool:
    return Path(urlparse(file.location).path).exists()


def test_a_lake_table_is_made_as_fluss_makes_it(spark, catalogs, keyed):
    catalogs.open_table(keyed)

    iceberg = spark._jvm.org.apache.iceberg
    made = iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name(keyed))
    schema = json.loads(iceberg.SchemaParser.toJson(made.schema()))
    assert [(f["id"], f["name"], f["type"], f["required"]) for f in schema["fields"]] == [
        (1, "k", "int", True),
        (2, "v", "string", False),
        (3, "__bucket", "int", True),
        (4, "__offset", "long", True),
        (5, "__timestamp", "timestamptz", True),
    ]
    assert schema["identifier-field-ids"] == [1]
    spec = json.loads(iceberg.PartitionSpecParser.toJson(made.spec()))
    assert [(f["name"], f["transform"], f["source-id"]) for f in spec["fields"]] == [("k_bucket", "bucket[1]", 1)]
    order = json.loads(iceberg.SortOrderParser.toJson(made.sortOrder()))
    assert [(f["source-id"], f["transform"], f["direction"]) for f in order["fields"]] == [(4, "identity", "asc")]
    assert made.operations().current().formatVersion() == 2
    properties = dict(made.properties())
    assert properties.pop("write.parquet.compression-codec") == "zstd"  # Iceberg's own default
    assert properties == {
        "write.delete.mode": "merge-on-read",
        "write.update.mode": "merge-on-read",
        "write.merge.mode": "merge-on-read",
        "fluss.table.datalake.freshness": "3min",
    }


def test_opening_a_table_again_finds_it_unchanged(catalogs, keyed):
    assert catalogs.open_table(keyed).base() is None
    first = catalogs.open_table(keyed).commit([], commit_of(1))

    assert catalogs.open_table(keyed).base() == first


def test_the_size_of_the_lake_table_is_told(catalogs, keyed):
    lake = catalogs.open_table(keyed)
    files = piece(lake, {1: "a", 2: "b"})
    first = lake.commit([files], commit_of(1))
    assert lake.size(first) == LakeTableSize(sum(file.size_bytes for file in files), 2)

    again = catalogs.open_table(keyed)
    later = piece(again, {1: "c"}, delete=True)
    second = again.commit([later], commit_of(2))
    assert again.size(second) == LakeTableSize(sum(file.size_bytes for file in (*files, *later)), 3)


def test_a_lake_table_of_another_layout_is_refused(spark, catalogs, keyed):
    catalogs.open_table(keyed)
    spark.sql(f"ALTER TABLE {name(keyed)} DROP COLUMN v")

    with pytest.raises(FlussTieringError, match="`v` string is missing") as raised:
        catalogs.open_table(keyed)
    assert raised.value.code is ErrorCode.LAKE_TABLE_MISMATCH


def test_a_catalog_that_cannot_be_opened_is_named_without_a_stack_trace(catalogs, keyed):
    keyed.lake_catalog_properties["uri"] = "jdbc:sqlite:/no/such/folder/catalog.db"

    with pytest.raises(FlussTieringError) as raised:
        catalogs.open_table(keyed)
    assert raised.value.code is ErrorCode.STORAGE
    assert "/no/such/folder" in raised.value.message
    assert "\n" not in raised.value.message


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


def test_the_newest_commit_that_the_storage_does_not_know_is_found_with_its_own_offsets(catalogs, keyed):
    lake = catalogs.open_table(keyed)
    known = lake.commit([piece(lake, {1: "a"})], commit_of(1))
    lake = catalogs.open_table(keyed)
    commit = commit_of(2)
    newest = lake.commit([piece(lake, {1: "b"}, delete=True)], commit)

    lake = catalogs.open_table(keyed)
    for registered in (known, None):
        found = lake.unregistered_commit(registered)
        assert found is not None
        assert (found.snapshot_id, found.commit) == (newest, commit)
    assert lake.unregistered_commit(newest) is None


# D49: Iceberg keeps the summaries of all snapshots in each metadata file
def test_the_offsets_of_many_buckets_lie_in_a_file_that_the_summary_names(spark, catalogs, keyed):
    offsets = {TableBucket(1, number): 10**12 + number for number in range(16_384)}
    commit = replace(commit_of(1), log_end_offsets=offsets)
    lake = catalogs.open_table(keyed)
    landed = lake.commit([piece(lake, {1: "a"})], commit)

    said = spark.sql(f"SELECT summary FROM {name(keyed)}.snapshots").first().summary
    assert sum(len(key) + len(value) for key, value in said.items()) < 2_000
    found = catalogs.open_table(keyed).unregistered_commit(None)
    assert (found.snapshot_id, found.commit.commit_id) == (landed, commit.commit_id)
    assert found.commit.log_end_offsets == offsets
    # A few buckets stay in the summary, as before.
    lake = catalogs.open_table(keyed)
    lake.commit([piece(lake, {2: "a"})], commit_of(2))
    assert catalogs.open_table(keyed).newest_commit().commit.lake_offsets is None


# D49
@pytest.mark.parametrize(("content", "code"), [(None, ErrorCode.STORAGE), (b"{}", ErrorCode.CORRUPT_DATA)])
def test_an_offsets_file_that_is_gone_or_damaged_is_named(catalogs, keyed, monkeypatch, content, code):
    monkeypatch.setattr(summary, "_MAX_OFFSETS_LENGTH", 0)
    lake = catalogs.open_table(keyed)
    lake.commit([piece(lake, {1: "a"})], commit_of(1))
    (path,) = Path(urlparse(lake.data_location()).path).glob("*-offsets.json")
    path.unlink()
    for beside in path.parent.glob(f".{path.name}*"):
        beside.unlink()
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(FlussTieringError, match=path.name) as refused:
        catalogs.open_table(keyed).unregistered_commit(None)
    assert refused.value.code is code


# D49
def test_the_offsets_file_of_a_commit_that_lost_goes(catalogs, keyed, monkeypatch):
    monkeypatch.setattr(summary, "_MAX_OFFSETS_LENGTH", 0)
    stale, lake = catalogs.open_table(keyed), catalogs.open_table(keyed)
    lake.commit([piece(lake, {1: "a"})], commit_of(1))
    folder = Path(urlparse(lake.data_location()).path)
    assert len(list(folder.glob("*-offsets.json"))) == 1

    with pytest.raises(FlussTieringError) as refused:
        stale.commit([piece(stale, {1: "b"})], commit_of(1))
    assert refused.value.code is ErrorCode.LAKE_CONFLICT
    assert len(list(folder.glob("*-offsets.json"))) == 1


# D49
@pytest.mark.parametrize(
    "offsets",
    [
        {},
        {TableBucket(7, 3): 5},
        {TableBucket(7, 0): 0, TableBucket(7, 2): 9},
        {TableBucket(7, 1, 40): 3, TableBucket(7, 0, 12): 2**62, TableBucket(7, 4, 12): 1},
    ],
)
def test_offsets_come_back_from_their_file(offsets):
    assert from_json(to_json(7, offsets)) == offsets


def test_a_compaction_on_top_hides_nothing(spark, catalogs, log):
    lake = catalogs.open_table(log)
    known = lake.commit([piece(lake, {1: "a"}) + piece(lake, {2: "a"})], commit_of(2))
    compact(spark, log)

    assert catalogs.open_table(log).base() != known
    assert catalogs.open_table(log).unregistered_commit(known) is None


def test_a_lake_that_was_rolled_back_is_refused(spark, catalogs, keyed):
    lake = catalogs.open_table(keyed)
    first = lake.commit([piece(lake, {1: "a"})], commit_of(1))
    lake = catalogs.open_table(keyed)
    second = lake.commit([piece(lake, {2: "a"})], commit_of(2))
    catalog = log_catalog(keyed)
    spark.sql(f"CALL {catalog}.system.rollback_to_snapshot('{keyed.path}', {first})")

    with pytest.raises(FlussTieringError, match=f"does not hold the snapshot {second}") as raised:
        catalogs.open_table(keyed).unregistered_commit(second)
    assert raised.value.code is ErrorCode.LAKE_TABLE_MISMATCH


def test_a_lake_of_a_table_that_was_dropped_and_created_again_is_refused(catalogs, keyed):
    lake = catalogs.open_table(keyed)
    lake.commit([piece(lake, {1: "a"})], commit_of(1, table_id=99))

    with pytest.raises(FlussTieringError, match=r"id 99.*id 1") as raised:
        catalogs.open_table(keyed).unregistered_commit(None)
    assert raised.value.code is ErrorCode.LAKE_TABLE_MISMATCH


def test_a_lake_with_somebody_else_s_rows_is_not_begun(spark, catalogs, log):
    catalogs.open_table(log)
    insert(spark, log, 1)

    with pytest.raises(FlussTieringError, match="rows that tiering did not write") as raised:
        catalogs.open_table(log).unregistered_commit(None)
    assert raised.value.code is ErrorCode.LAKE_TABLE_MISMATCH


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

    written: list[bool] = []
    delete = IcebergCommitter._delete

    def noting(committer: IcebergCommitter, files: object) -> None:
        written.append(bool(committer._manifests.locations))
        delete(committer, files)

    few_files.setattr(IcebergCommitter, "_delete", noting)

    def succeed() -> None:
        done = {"append": [piece(fresh, {3: "fresh"})], "delete": [piece(fresh, {1: "gone"}, delete=True)]}
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
    assert list(Path(urlparse(stale.metadata_location()).path).glob("*-files-*.avro")) == []


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


def test_a_compaction_between_staging_and_commit_is_no_conflict(spark, catalogs, keyed, monkeypatch):
    lake = catalogs.open_table(keyed)
    lake.commit([piece(lake, {1: "a", 2: "a"}), piece(lake, {3: "a"})], commit_of(3))
    lake = catalogs.open_table(keyed)
    pieces = [piece(lake, {1: "b"}, delete=True), piece(lake, {1: "c", 4: "c"}, delete=True)]
    run_after_staging(monkeypatch, lambda: compact(spark, keyed))

    lake.commit(pieces, commit_of(6))

    assert rows(spark, keyed) == [(1, "c"), (2, "a"), (3, "a"), (4, "c")]


def test_a_commit_that_landed_although_it_failed_is_found_by_its_id(spark, catalogs, keyed, monkeypatch):
    lake = catalogs.open_table(keyed)
    stage = IcebergCommitter._stage

    class LostAnswer:
        """A transaction whose commit works and whose answer never arrives."""

        def __init__(self, transaction) -> None:
            self._transaction = transaction

        def commitTransaction(self) -> None:  # noqa: N802
            self._transaction.commitTransaction()
            raise Py4JError("the answer was lost")

    monkeypatch.setattr(IcebergCommitter, "_stage", lambda *args: LostAnswer(stage(*args)))

    landed = lake.commit([piece(lake, {1: "a"})], commit_of(1))

    assert catalogs.open_table(keyed).base() == landed
    assert rows(spark, keyed) == [(1, "a")]


def test_files_are_kept_while_the_outcome_is_open(catalogs, keyed, monkeypatch):
    lake = catalogs.open_table(keyed)
    files = piece(lake, {1: "a"})

    class Unsent:
        def commitTransaction(self) -> None:  # noqa: N802
            raise Py4JError("the catalog is away")

    monkeypatch.setattr(IcebergCommitter, "_stage", lambda *_: Unsent())
    with pytest.raises(FlussTieringError, match="its files are kept") as raised:
        lake.commit([files], commit_of(1))

    assert raised.value.code is ErrorCode.STORAGE
    assert all(exists(file) for file in files)


@pytest.mark.parametrize("after", ["compaction", "delete of whole files"])
def test_files_are_kept_when_nothing_was_added_after_the_base(spark, catalogs, keyed, monkeypatch, after):
    # A commit that was sent after the compaction may still land: the simulation found its files deleted by then.
    catalogs.open_table(keyed).commit([piece(catalogs.open_table(keyed), {1: "a"})], commit_of(1))
    lake = catalogs.open_table(keyed)
    files = piece(lake, {2: "b"})

    class Lost:
        def commitTransaction(self) -> None:  # noqa: N802
            if after == "compaction":
                compact(spark, keyed)
            else:
                everything = spark._jvm.org.apache.iceberg.expressions.Expressions.alwaysTrue()
                catalogs.open_table(keyed).java_table.newDelete().deleteFromRowFilter(everything).commit()
            raise Py4JError("the answer was lost")

    monkeypatch.setattr(IcebergCommitter, "_stage", lambda *_: Lost())
    with pytest.raises(FlussTieringError, match="its files are kept") as raised:
        lake.commit([files], commit_of(2))

    assert raised.value.code is ErrorCode.STORAGE
    assert catalogs.open_table(keyed).base() != lake.base()
    assert all(exists(file) for file in files)


def test_of_two_commits_without_files_one_loses(catalogs, keyed):
    stale, fresh = catalogs.open_table(keyed), catalogs.open_table(keyed)
    fresh.commit([], commit_of(2))

    with pytest.raises(FlussTieringError) as raised:
        stale.commit([[]], commit_of(1))
    assert raised.value.code is ErrorCode.LAKE_CONFLICT


# S21: a range without rows still advances the offsets
def test_a_commit_without_files_says_its_offsets(spark, catalogs, keyed):
    lake = catalogs.open_table(keyed)
    base = lake.commit([piece(lake, {1: "a"})], commit_of(1))
    lake = catalogs.open_table(keyed)
    commit = commit_of(7)

    lake.commit([[], []], commit)

    found = catalogs.open_table(keyed).unregistered_commit(base)
    assert found is not None
    assert found.commit.log_end_offsets == {TableBucket(1, 0): 7}
    assert rows(spark, keyed) == [(1, "a")]


def test_every_type_comes_back_from_spark_as_it_was(spark, catalogs, lake_properties):
    values = {
        "BOOLEAN": ([True, None], [True, None]),
        "INT": ([-(2**31), None], [-(2**31), None]),
        "BIGINT": ([2**63 - 1, None], [2**63 - 1, None]),
        "DOUBLE": ([-0.5, None], [-0.5, None]),
        "DECIMAL(38, 10)": ([Decimal("-12345.0000000001"), None],) * 2,
        "STRING": (["naïve ☕", None],) * 2,
        "DATE": ([dt.date(1905, 3, 1), None],) * 2,
        "TIMESTAMP(0)": ([dt.datetime(1950, 1, 1, 12), None],) * 2,
        # Nanoseconds are floored, as the bucketing of a key does.
        "TIMESTAMP(9)": (
            pa.array([-1_500_000_001_001, None], pa.timestamp("ns")),
            [dt.datetime(1969, 12, 31, 23, 34, 59, 999998), None],
        ),
        "TIMESTAMP_LTZ(3)": (
            [dt.datetime(2020, 5, 1, 1, 2, 3, 4000), None],
            [dt.datetime(2020, 5, 1, 1, 2, 3, 4000), None],
        ),
    }
    columns = tuple(Column(f"c{i}", DataType.parse(text)) for i, text in enumerate(values))
    table = TableInfo(1, PATH, 1, TableDescriptor(columns), 0, lake_properties)
    schema = arrow_schema(columns)
    arrays = [pa.array(given, field.type) for (given, _), field in zip(values.values(), schema, strict=True)]

    lake = catalogs.open_table(table)
    writer = lake.file_writer().open_piece(0, lake.piece_location(0, "p"), 0)
    writer.write(pa.RecordBatch.from_arrays(arrays, schema=schema), np.array([10, 11]), np.array([1500, 1501]))
    lake.commit([writer.close()], commit_of(2))

    first, second = spark.sql(f"SELECT * FROM {name(table)} ORDER BY __offset").collect()
    assert list(first)[: len(values)] == [wanted[0] for _, wanted in values.values()]
    assert list(second)[: len(values)] == [None] * len(values)
    assert (first["__bucket"], first["__offset"]) == (0, 10)
    # A TIMESTAMP_LTZ arrives in Python in the local time of this process.
    assert first["__timestamp"].astimezone(dt.UTC).timestamp() == 1.5


def test_files_carry_the_bounds_that_readers_prune_by(spark, catalogs, keyed):
    lake = catalogs.open_table(keyed)
    lake.commit([piece(lake, {5: "b", 9: None}), piece(lake, {9: "c"}, delete=True)], commit_of(3))

    files = spark.sql(
        f"SELECT content, record_count, equality_ids, readable_metrics.k AS k, readable_metrics.v AS v "
        f"FROM {name(keyed)}.all_files ORDER BY content, record_count DESC"
    ).collect()

    first, _, deletes = files
    assert (first.content, first.record_count, first.equality_ids) == (0, 2, None)
    assert (first.k.lower_bound, first.k.upper_bound, first.k.null_value_count) == (5, 9, 0)
    assert (first.v.lower_bound, first.v.null_value_count) == ("b", 1)
    assert (deletes.content, deletes.record_count, deletes.equality_ids) == (2, 1, [1])
    assert (deletes.k.lower_bound, deletes.k.upper_bound) == (9, 9)


# D51: Iceberg is asked once for a partition, not once for each of a hundred thousand buckets
@pytest.mark.parametrize("object_storage", [False, True])
def test_files_are_placed_where_iceberg_s_location_provider_says(spark, catalogs, lake_properties, object_storage):
    descriptor = TableDescriptor((*COLUMNS, Column("day", DataType.parse("STRING NOT NULL"))), partition_keys=("day",))
    table = TableInfo(1, PATH, 1, replace(descriptor, num_buckets=3), 0, lake_properties)
    catalogs.open_table(table)
    spark.sql(f"ALTER TABLE {name(table)} SET TBLPROPERTIES ('write.object-storage.enabled'='{object_storage}')")
    lake = catalogs.open_table(table)

    spec, provider = lake.java_table.spec(), lake.java_table.locationProvider()
    data_files = spark._jvm.org.apache.iceberg.DataFiles
    for day in ("2024-01-01", "a b+c"):
        for bucket, file_name in ((0, "a"), (2, "b"), (1, "c")):
            partition = data_files.data(spec, f"day={day}/__bucket={bucket}")
            expected = provider.newDataLocation(spec, partition, file_name)
            assert lake.piece_location(bucket, file_name, (day,)) == expected


@pytest.mark.parametrize("column", ["a=b", "a/b", "a%2Fb", "a b", "日本", "a.b", "a=b/c="])
def test_files_have_a_place_whatever_the_key_columns_are_called(spark, catalogs, lake_properties, column):
    # A table whose key had "=" or "/" in its name failed each round.
    key, day = (Column(each, DataType.parse("STRING NOT NULL")) for each in (column, f"{column} day"))
    descriptor = TableDescriptor(
        (key, day),
        primary_key=(key.name, day.name),
        bucket_keys=(key.name,),
        num_buckets=2,
        partition_keys=(day.name,),
    )
    lake = catalogs.open_table(TableInfo(1, PATH, 1, descriptor, 0, lake_properties))
    places = {lake.piece_location(bucket, "f", (value,)) for bucket in (0, 1) for value in ("mon", "a=b/c")}
    assert len(places) == 4
    folder = lake.data_location()
    assert all(place.startswith(f"{folder}/") and place.endswith("/f") for place in places)


def test_a_file_at_its_target_size_is_followed_by_another(spark, catalogs, log):
    lake = catalogs.open_table(log)
    spark.sql(f"ALTER TABLE {name(log)} SET TBLPROPERTIES ('write.target-file-size-bytes'='1')")
    lake = catalogs.open_table(log)
    writer = lake.file_writer().open_piece(1, lake.piece_location(1, "p"), 4)
    batch = pa.RecordBatch.from_pydict({"k": [1] * 2**20, "v": ["x"] * 2**20}, schema=arrow_schema(COLUMNS))
    stamps = np.arange(2**20)
    for _ in range(2):
        writer.write(batch, stamps, stamps)

    files = writer.close()

    assert [Path(file.location).name for file in files] == ["p-4-00000.parquet", "p-4-00001.parquet"]
    lake.commit([files], commit_of(2))
    assert spark.sql(f"SELECT count(*) AS n FROM {name(log)} WHERE __bucket = 1").first().n == 2**21


def test_an_aborted_piece_leaves_no_file(catalogs, keyed):
    lake = catalogs.open_table(keyed)
    location = lake.piece_location(0, "aborted")
    writer = lake.file_writer().open_piece(0, location, 0)
    batch = pa.RecordBatch.from_pydict({"k": [1], "v": ["x"]}, schema=arrow_schema(COLUMNS))
    writer.write(batch, np.array([0]), np.array([0]))
    writer.delete(batch.select(["k"]))
    written = writer.close()
    assert all(exists(file) for file in written)

    writer.abort()

    assert not any(exists(file) for file in written)


def log_catalog(table: TableInfo) -> str:
    return table.lake_catalog_properties["name"]


def compact(spark, table: TableInfo) -> None:
    spark.sql(
        f"CALL {log_catalog(table)}.system.rewrite_data_files(table => '{table.lake_catalog_properties['name']}."
        f"{table.path}', options => map('rewrite-all', 'true'))"
    )


def insert(spark, table: TableInfo, key: int) -> None:
    spark.sql(f"INSERT INTO {name(table)} VALUES ({key}, 'theirs', 0, 0, TIMESTAMP '2020-01-01 00:00:00')")


def run_after_staging(monkeypatch, action) -> None:
    """Let `action` happen once, after the next transaction is built and before it is committed."""
    stage = IcebergCommitter._stage

    def staged(*args):
        monkeypatch.undo()
        transaction = stage(*args)
        action()
        return transaction

    monkeypatch.setattr(IcebergCommitter, "_stage", staged)


# D47
def test_credentials_that_end_soon_are_renewed_before_a_stage(catalogs, keyed, monkeypatch):
    lake = catalogs.open_table(keyed)
    loaded = []

    def vended(jvm, handle, *arguments):
        loaded.append(handle)
        minutes = 5 if len(loaded) == 1 else 60
        return {"s3.session-token-expires-at-ms": str(int((time.time() + 60 * minutes) * 1000))}

    monkeypatch.setattr(table_module, "file_io_properties", vended)

    writer = lake.file_writer()

    assert len(loaded) == 2
    assert loaded[1] != loaded[0], "the table is loaded again, since the catalog vends credentials with it"
    assert credentials_expire_ms(writer.io_properties) > (time.time() + 30 * 60) * 1000
    assert lake.base() is None
    assert len(loaded) == 2
    lake.file_writer()
    assert len(loaded) == 3, "those that are fresh stay"
    assert "expires" not in repr(writer)


# D47
def test_settings_of_the_session_and_of_hadoop_reach_executors(spark, keyed):
    session = spark.newSession()
    name = keyed.lake_catalog_properties["name"]
    session.conf.set(f"spark.sql.catalog.{name}.s3.access-key-id", "of the session")
    keyed.lake_catalog_properties["s3.access-key-id"] = "of the server"
    keyed.lake_catalog_properties["s3.region"] = "of the server"
    lake = IcebergCatalogs(session).open_table(keyed)
    properties = lake.file_writer().io_properties
    assert (properties["s3.access-key-id"], properties["s3.region"]) == ("of the session", "of the server")

    conf = lake.java_table.io().getConf()
    for key, value in {
        "fs.s3a.access.key": "a",
        "fs.s3a.bucket.lake.access.key": "b",
        "fs.s3a.endpoint": "h:9000",
        "fs.s3a.connection.ssl.enabled": "false",
        "fs.s3a.encryption.algorithm": "SSE-KMS",
    }.items():
        conf.set(key, value)
    found = file_io_properties(spark._jvm, lake.java_table, "s3a://lake/db/t", {})
    assert found["s3.access-key-id"] == "b"
    assert found["s3.endpoint"] == "http://h:9000"
    assert found["s3.sse.type"] == "kms"
