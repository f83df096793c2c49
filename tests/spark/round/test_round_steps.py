"""What a round asks of the server and of the lake before it reads, and what it hands to its workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from plain_lake import PlainLake, PlainTable
from plain_rounds import Application, named

from fluss_tiering.client import TieringClient
from fluss_tiering.lake.files import FileContent
from fluss_tiering.model.column_changes import AddColumn
from fluss_tiering.model.table import BucketInfo, Column, DataType, KvSnapshot, TableInfo, TablePath, WriteKind
from fluss_tiering.model.tiering import Claim
from fluss_tiering.spark.round import round as round_module
from fluss_tiering.spark.round.plan import LogPiece, PlanLimits, SnapshotPiece
from fluss_tiering.storage.open import open_split_reader

# Logs of which something is missing


def cut(monkeypatch: pytest.MonkeyPatch, start: int) -> None:
    """Let all logs begin at an offset, as if a retention had deleted what is before it."""
    list_buckets = TieringClient.list_buckets

    def cut_buckets(client: TieringClient, paths: Sequence[TablePath]) -> Mapping[TablePath, list[BucketInfo]]:
        found = list_buckets(client, paths)
        return {path: [replace(each, log_start_offset=start) for each in infos] for path, infos in found.items()}

    monkeypatch.setattr(TieringClient, "list_buckets", cut_buckets)


# D44
@pytest.mark.parametrize("way", ["equality", "position"])
def test_a_bucket_whose_log_has_a_gap_is_read_again_from_its_snapshot(application: Application, monkeypatch, way: str):
    table = application.table(properties={"table.datalake.delete-files": way})
    application.round(table, named(range(10), "first"))
    application.write(table, dict.fromkeys([0, 1]), WriteKind.DELETE)
    application.write(table, named([2, 20], "second"))
    application.client.take_kv_snapshots([table.path])
    (end,) = application.ends(table).values()
    application.write(table, named([3], "third"))
    cut(monkeypatch, end)
    assert "--skip-missing-log" in application.fail(table)
    application.tier(table, skip_missing_log=True)

    ((job, _),) = application.jobs
    assert [type(work.piece) for work in job.work] == [SnapshotPiece, LogPiece]
    expected = {**named(range(3, 10), "first"), **named([2, 20], "second"), **named([3], "third")}
    assert application.rows(table) == sorted(expected.items())
    known = application.client.lake_snapshot(table.path)
    assert known is not None
    assert dict(known.log_end_offsets) == application.ends(table)
    assert application.tier(table, skip_missing_log=True).stats.lake_snapshot_id is None


def test_a_round_that_reads_a_bucket_again_begins_anew_if_the_lake_is_rewritten(application: Application, monkeypatch):
    """It removes what the lake holds of the bucket, also if it deletes no rows by position."""
    table = application.table()
    application.round(table, named(range(10), "first"))
    application.write(table, named([2, 20], "second"))
    application.client.take_kv_snapshots([table.path])
    (end,) = application.ends(table).values()
    cut(monkeypatch, end)
    commits: list[int] = []

    def rewrite_at_first() -> None:
        commits.append(1)
        if len(commits) == 1:
            application.lake.compact(table)

    application.lake.before_commit = rewrite_at_first
    application.tier(table, skip_missing_log=True)
    assert len(commits) == 2
    assert application.rows(table) == sorted((named(range(10), "first") | named([2, 20], "second")).items())


@pytest.mark.parametrize("told", [True, False])
def test_a_log_table_goes_on_where_its_log_begins_if_it_is_told_to(  # D44
    application: Application, monkeypatch, caplog, told: bool
):
    table = application.table(key=False)
    application.round(table, named(range(4), "first"))
    application.write(table, named(range(4, 10), "second"))
    cut(monkeypatch, 7)
    if not told:
        assert "offsets 4 to 6" in application.fail(table)
        return
    application.tier(table, skip_missing_log=True)
    assert [key for key, _ in application.rows(table)] == [*range(4), *range(7, 10)]
    assert f"{table.path} goes on without a part of its log" in caplog.text
    assert "offsets 4 to 6" in caplog.text


# Snapshots


def test_snapshots_of_unknown_size_are_measured_before_they_are_cut(application: Application, monkeypatch):
    table = application.table(num_buckets=2)
    application.write(table, named(range(300), "row"))
    metadata = TieringClient.kv_snapshot_metadata
    opened: list[tuple[object, ...]] = []

    def unknown(client: TieringClient, snapshots: Any) -> list[KvSnapshot]:
        return [replace(each, row_count=-1, size_bytes=0, split_keys=()) for each in metadata(client, snapshots)]

    class Reader:
        def measure_kv_snapshot(self, of: TableInfo, snapshot: KvSnapshot) -> KvSnapshot:
            assert of.path == table.path
            return replace(snapshot, row_count=100, size_bytes=90 << 20, split_keys=(b"\x40", b"\x80", b"\xc0"))

    def open_reader(*place: object) -> Reader:
        opened.append(place)
        return Reader()

    monkeypatch.setattr(TieringClient, "kv_snapshot_metadata", unknown)
    monkeypatch.setattr(round_module, "open_split_reader", open_reader)
    application.tier(table, limits=PlanLimits(append_piece_bytes=30 << 20))

    assert opened == [(application.client.describe_storage(), application.target)]
    ((job, _),) = application.jobs
    pieces = [work.piece for work in job.work if isinstance(work.piece, SnapshotPiece)]
    assert len(pieces) == len(job.work) > 2
    assert {piece.snapshot.size_bytes for piece in pieces} == {90 << 20}
    assert application.rows(table) == sorted(named(range(300), "row").items())


def test_only_buckets_that_were_never_tiered_need_a_snapshot(application: Application, monkeypatch):
    table = application.table(num_buckets=2)
    application.round(table, named(range(20), "first"))
    asked: list[object] = []
    monkeypatch.setattr("fluss_tiering.spark.round.lease.TableLease.snapshots", lambda *of: asked.append(of))
    application.round(table, named(range(20), "second"))
    assert asked == []


def test_a_round_without_pieces_is_one_commit_and_asks_the_lake_for_no_files(application: Application, monkeypatch):
    table = application.table(num_buckets=2)
    application.write(table, named(range(6), "row"))
    application.write(table, dict.fromkeys(range(6)), WriteKind.DELETE)
    monkeypatch.setattr(PlainTable, "live_files", None)
    result = application.tier(table)
    assert application.jobs == []
    assert application.told.stages == []
    (newest,) = application.lake.tables[str(table.path)]
    assert (newest.parts, newest.files) == (1, [])
    assert (result.stats.rows, result.stats.files, result.cost.peak_worker_bytes) == (0, 0, 0)


def test_an_empty_round_tells_what_its_plan_cost(application: Application, monkeypatch):
    table = application.table()
    application.round(table, named(range(3), "row"))

    def find(lake: PlainLake, of: TableInfo, *, follow: bool) -> PlainTable:
        application.now += 2
        return PlainTable(lake, of)

    monkeypatch.setattr(PlainLake, "find_table", find)
    cost = application.tier(table).cost
    assert (cost.plan, cost.stage, cost.commit, cost.peak_worker_bytes) == (2, 0, 0, 0)


# Columns that are added meanwhile


def altered(monkeypatch: pytest.MonkeyPatch, alter: Callable[[TableInfo], TableInfo]) -> list[int]:
    """Let a table be another one from the second time on that it is asked for; return the schemas of its lake table.

    It is asked for once before the round.
    """
    get_tables = TieringClient.get_tables
    find_table = PlainLake.find_table
    calls: list[int] = []
    opened: list[int] = []

    def get(client: TieringClient, paths: Sequence[TablePath]) -> list[TableInfo]:
        calls.append(1)
        found = get_tables(client, paths)
        return list(map(alter, found)) if len(calls) > 1 else found

    def find(lake: PlainLake, table: TableInfo, *, follow: bool) -> PlainTable | None:
        opened.append(table.schema_id)
        return find_table(lake, table)

    monkeypatch.setattr(TieringClient, "get_tables", get)
    monkeypatch.setattr(PlainLake, "find_table", find)
    return opened


def test_a_round_is_planned_again_if_the_table_has_another_schema_by_then(application: Application, monkeypatch):
    table = application.table(key=False)
    application.write(table, named(range(3), "row"))
    added = AddColumn(Column("note", DataType.parse("STRING")))

    def alter(found: TableInfo) -> TableInfo:
        return found if found.schemas else application.client.alter_table(table.path, column_changes=[added])

    opened = altered(monkeypatch, alter)
    application.tier(table)
    assert opened == [table.schema_id, table.schema_id + 1]
    ((job, _),) = application.jobs
    assert job.table.schema_id == table.schema_id + 1
    assert application.rows(table) == sorted(named(range(3), "row").items())


def test_another_table_of_the_same_name_is_left_to_the_commit(application: Application, monkeypatch):
    table = application.table(key=False)
    application.write(table, named(range(3), "row"))
    other = {"schema_id": table.schema_id + 1, "table_id": table.table_id + 1000}
    opened = altered(monkeypatch, lambda found: replace(found, **other))
    application.tier(table)
    assert opened == [table.schema_id]
    ((job, _),) = application.jobs
    assert job.table.table_id == table.table_id


# Workers


def test_workers_get_what_they_need_to_read_and_no_more(application: Application, monkeypatch):
    table = application.table(key=False)
    application.write(table, named(range(3), "row"))
    claim_tables = TieringClient.claim_tables
    asked: list[object] = []

    def claim(*arguments: Any, **given: Any) -> list[Claim]:
        return [replace(each, executor_token="for-executors") for each in claim_tables(*arguments, **given)]

    def access(storage: object) -> str:
        asked.append(storage)
        return "access"

    monkeypatch.setattr(TieringClient, "claim_tables", claim)
    monkeypatch.setattr(round_module, "cluster_access", access)
    monkeypatch.setattr("fluss_tiering.spark.round.pieces.open_split_reader", lambda *at: open_split_reader(*at[:2]))
    application.tier(table, max_round_duration="1h")
    ((job, _),) = application.jobs
    storage = application.client.describe_storage()
    assert (job.storage, job.target, job.access, asked) == (storage, application.target, "access", [storage])
    assert job.security is not None
    assert job.security.token == "for-executors"
    assert {file.content for file in application.lake.tables[str(table.path)][-1].files} == {FileContent.DATA}
