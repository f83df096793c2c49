"""Whole rounds in one process: a real server, storage and files, and a lake in plain Python instead of Iceberg.

They show what a round leaves in the lake and with the server, and what it tells of itself, without a JVM.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
from plain_lake import PlainLake, PlainTable
from plain_rounds import Application, Rows, named

from fluss_tiering.client import TieringClient
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.lake.protocol import LakeCommit
from fluss_tiering.model.table import Column, DataType, TableDescriptor, TableInfo, WriteKind
from fluss_tiering.model.tiering import TieringState
from fluss_tiering.spark.round import lease
from fluss_tiering.spark.round import round as round_module
from fluss_tiering.spark.round.plan import LogPiece, PlanLimits

# What is in the lake


def test_each_row_of_a_log_is_tiered_once(application: Application):  # L1
    table = application.table(key=False, num_buckets=3)
    expected: dict[int, str | None] = {}
    for start in (0, 20, 40):
        rows = named(range(start, start + 20), "row")
        application.write(table, rows)
        expected |= rows
        result = application.tier(table)
        assert application.rows(table) == sorted(expected.items())
        assert result.stats.rows == 20
        known = application.client.lake_snapshot(table.path)
        assert known is not None
        assert (known.snapshot_id, dict(known.log_end_offsets)) == (
            result.stats.lake_snapshot_id,
            application.ends(table),
        )


def test_the_lake_holds_the_last_row_of_each_key(application: Application):
    table = application.table(num_buckets=2)
    expected = named(range(30), "first")
    application.write(table, expected)
    application.client.take_kv_snapshots([table.path])
    application.write(table, named(range(5), "second"))
    application.write(table, named([3], "third"))
    expected |= named(range(5), "second") | named([3], "third")
    application.tier(table)
    assert application.rows(table) == sorted(expected.items())

    application.write(table, named([1, 99], "later"))
    application.round(table, dict.fromkeys([2, 3]), WriteKind.DELETE)
    expected |= named([1, 99], "later")
    del expected[2], expected[3]
    assert application.rows(table) == sorted(expected.items())


def test_a_table_without_anything_new_is_not_committed(application: Application):  # S21, Fluss #4372
    table = application.table()
    first = application.round(table, named(range(3), "row"))

    def never() -> int:
        raise AssertionError("an empty round waits for no executors")

    application.now += 0.25
    again = application.tier(table, parallelism=never)
    assert again.stats.lake_snapshot_id is None
    assert (again.stats.rows, again.stats.files, again.complete) == (0, 0, True)
    assert application.told.steps == [f"{table.path}: claiming", f"{table.path}: planning"]
    assert not application.jobs
    known = application.client.lake_snapshot(table.path)
    assert known is not None
    assert known.snapshot_id == first.stats.lake_snapshot_id


def test_a_later_piece_of_a_bucket_replaces_the_rows_of_an_earlier_one(application: Application):
    table = application.table()
    application.round(table, {1: "first"})
    for number in range(6):
        application.write(table, {1: f"version {number}", 10 + number: "other"})
    application.tier(table, limits=PlanLimits(change_piece_bytes=1))
    ((job, _),) = application.jobs
    assert len({work.piece.ordinal for work in job.work if isinstance(work.piece, LogPiece)}) > 1
    assert dict(application.rows(table)) == {1: "version 5", **{10 + number: "other" for number in range(6)}}


# S21, regression: Fluss #3892
def test_a_commit_of_a_round_that_reads_nothing_moves_its_offsets(application: Application):
    table = application.table(num_buckets=2)
    application.write(table, named(range(6), "row"))
    application.round(table, dict.fromkeys(range(6)), WriteKind.DELETE)
    known = application.client.lake_snapshot(table.path)
    assert known is not None
    assert dict(known.log_end_offsets) == application.ends(table)
    assert application.rows(table) == []
    (newest,) = application.lake.tables[str(table.path)]
    assert isinstance(newest.commit, LakeCommit)


DAYS = TableDescriptor(
    (
        Column("id", DataType.parse("BIGINT NOT NULL")),
        Column("day", DataType.parse("STRING NOT NULL")),
        Column("name", DataType.parse("STRING")),
    ),
    ("id", "day"),
    ("id",),
    2,
    {"table.datalake.enabled": "true"},
    partition_keys=("day",),
)


def write_day(application: Application, table: TableInfo, day: str, rows: Rows) -> None:
    columns = {"id": list(rows), "day": [day] * len(rows), "name": list(rows.values())}
    batch = pa.table(columns, schema=arrow_schema(DAYS.columns))
    assert sum(application.client.write_rows(table.path, WriteKind.UPSERT, [batch])) == len(rows)


def of_day(application: Application, table: TableInfo, day: str) -> list[tuple[int, str | None]]:
    return [(row["id"], row["name"]) for row in application.lake.rows(table) if row["day"] == day]


def test_a_partition_that_is_made_again_replaces_the_rows_of_the_one_before(application: Application):
    table = application.client.create_table(application.new_path(), DAYS)
    for day in ("mon", "tue"):
        write_day(application, table, day, named(range(10), day))
    application.tier(table)
    application.client.drop_partition(table.path, ["mon"])
    write_day(application, table, "mon", named(range(3, 8), "new"))
    write_day(application, table, "tue", named([4], "later"))
    write_day(application, table, "wed", named([1, 2], "wed"))
    application.tier(table)

    found = dict(of_day(application, table, "mon"))
    assert {key: found[key] for key in range(3, 8)} == named(range(3, 8), "new")
    assert len(of_day(application, table, "mon")) == len(found), "no key is twice in the lake"
    assert of_day(application, table, "tue") == sorted((named(range(10), "tue") | named([4], "later")).items())
    assert of_day(application, table, "wed") == sorted(named([1, 2], "wed").items())
    # Rows of a partition that is new to the lake need no deletes.
    newest = application.lake.tables[str(table.path)][-1]
    deleting = {file.partition_values for file in newest.files if "-deletes-" in file.location}
    assert deleting == {("mon",), ("tue",)}
    # Each file is in the folder that the lake has for its partition and bucket.
    folders = {
        (
            file.location.rpartition("/")[0],
            f"file://{application.lake.folder}/{file.partition_values[0]}/bucket-{file.bucket}",
        )
        for file in newest.files
    }
    assert all(found == expected for found, expected in folders), folders


def test_the_lake_is_asked_only_about_buckets_that_were_never_tiered(application: Application, monkeypatch):
    asked: list[dict[tuple[str, ...], set[int]]] = []
    partitions_with_rows = PlainTable.partitions_with_rows

    def ask(lake: PlainTable, places: Mapping[tuple[str, ...], Collection[int]]) -> Collection[tuple[str, ...]]:
        asked.append({values: set(buckets) for values, buckets in places.items()})
        return partitions_with_rows(lake, places)

    monkeypatch.setattr(PlainTable, "partitions_with_rows", ask)
    table = application.client.create_table(application.new_path(), DAYS)
    for day in ("mon", "tue"):
        write_day(application, table, day, named(range(10), day))
    application.tier(table)
    assert asked == [{("mon",): {0, 1}, ("tue",): {0, 1}}]
    write_day(application, table, "mon", named(range(10), "again"))
    application.tier(table)
    assert len(asked) == 1, "all of its buckets are known"
    write_day(application, table, "wed", named([1], "wed"))
    ends = application.ends(table)
    (bucket,) = (
        each.bucket.bucket
        for each in application.client.list_buckets([table.path])[table.path]
        if each.partition_values == ("wed",) and each.bucket in ends
    )
    application.tier(table)
    assert asked[1:] == [{("wed",): {bucket}}]

    for key in (True, False):
        other = application.table(key=key)
        application.round(other, named([1], "row"))
    assert len(asked) == 2, "without partitions there was none before"


# What a round tells of itself


def test_a_round_tells_what_it_wrote_and_what_it_cost(application: Application, monkeypatch):
    table = application.table(num_buckets=4)
    application.write(table, named(range(40), "row"))

    def after(seconds: float) -> None:
        application.now += seconds

    find = PlainLake.open_table
    monkeypatch.setattr(PlainLake, "open_table", lambda lake, of: (after(2), find(lake, of))[1])
    application.on_stage = lambda job, guard: after(30)
    application.lake.before_commit = lambda: after(7)
    result = application.tier(table)

    files = application.lake.tables[str(table.path)][-1].files
    size = sum(file.size_bytes for file in files)
    assert (result.stats.rows, result.stats.files, result.stats.bytes) == (40, len(files), size)
    assert (result.stats.lake_file_size, result.stats.lake_record_count) == (size, 40)
    assert (result.cost.plan, result.cost.stage, result.cost.commit) == (2, 30, 7)
    assert result.seconds == 39
    assert result.cost.peak_worker_bytes == max(piece.peak_bytes for piece in application.written)
    assert application.told.steps == [f"{table.path}: {step}" for step in ("claiming", "planning", "committing")]
    ((job, group),) = application.jobs
    assert group.startswith(f"fluss-tiering-{table.table_id}-{result.epoch}-")
    assert application.told.stages == [(f"{table.path}: {group}", job.tasks)]
    assert application.told.results == [result]

    changed = application.round(table, named(range(10, 30), "changed"))
    assert changed.stats.rows == 20
    assert changed.stats.lake_record_count == 40
    assert changed.stats.lake_file_size == size + changed.stats.bytes


def test_all_cores_get_work_and_small_pieces_share_a_task(application: Application):
    table = application.table(num_buckets=6)
    application.round(table, named(range(200), "row"), parallelism=lambda: 4, buffer_bytes=12345)
    ((job, _),) = application.jobs
    assert (len(job.work), job.tasks, job.buffer_bytes) == (6, 4, 12345)
    assert application.told.stages[0][1] == 4


def test_the_plan_and_the_jobs_go_by_the_same_number_of_cores(application: Application):
    table = application.table(num_buckets=6)
    application.write(table, named(range(200), "row"))
    answers = iter([4, 1])
    application.tier(table, parallelism=lambda: next(answers))
    assert [job.tasks for job, _ in application.jobs] == [4]
    assert list(answers) == [1], "executors that come in mid-round do not change it"


# D52: the driver receives the results of a bounded number of pieces at once
def test_files_are_named_by_their_round_and_no_two_pieces_share_a_name(application: Application, monkeypatch):
    monkeypatch.setattr(round_module, "_MAX_PIECES_IN_JOB", 2)
    table = application.table(num_buckets=5)
    result = application.round(table, named(range(200), "row"))

    assert [len(job.work) for job, _ in application.jobs] == [2, 2, 1], "the driver holds two results at once"
    assert application.told.stages[0][1] == sum(job.tasks for job, _ in application.jobs)
    names = sorted(application.lake.files_on_disk())
    assert [name[:8] for name in names] == [f"{number:05d}-e{result.epoch}" for number in range(5)]
    (attempt,) = {name[len(f"00000-e{result.epoch}-") :][:36] for name in names}
    assert str(uuid.UUID(attempt)) == attempt
    assert application.rows(table) == sorted(named(range(200), "row").items())
    # The driver keeps thousands of files in mind, and Iceberg's description of each is packed.
    assert {file.packed for file in application.lake.tables[str(table.path)][-1].files} == {b"packed"}


# What it reads, and when it lets go


def test_workers_that_cannot_open_the_storage_s_files_read_through_the_server(application: Application):
    elsewhere = replace(application.client.describe_storage(), data_dir="")
    for key in (True, False):
        table = application.table(key=key, num_buckets=2)
        application.write(table, named(range(20), "first"))
        if key:
            application.client.take_kv_snapshots([table.path])
        application.round(table, named(range(20, 30), "second"), storage=elsewhere)
        assert application.rows(table) == sorted((named(range(20), "first") | named(range(20, 30), "second")).items())


def test_rows_that_arrive_while_the_driver_leases_are_not_lost(application: Application, monkeypatch):
    table = application.table()
    lease_latest, leased = lease.lease_latest_snapshots, []

    def lease_later(*arguments: Any) -> Any:
        """Let rows arrive after the lease of the application, and before that of the round."""
        leased.append(arguments)
        if len(leased) == 2:
            application.write(table, named(range(4, 8), "row"))
            application.client.take_kv_snapshots([table.path])
        acquired = lease_latest(*arguments)
        if len(leased) == 1:
            application.write(table, named(range(4), "row"))
        return acquired

    monkeypatch.setattr(lease, "lease_latest_snapshots", lease_later)
    application.tier(table)
    assert len(leased) == 2
    assert application.rows(table) == sorted(named(range(8), "row").items())


def test_the_outcome_comes_before_the_release(application: Application, monkeypatch):  # L13
    calls: list[str] = []
    for name in ("heartbeat", "release_lease"):
        called = getattr(TieringClient, name)

        def record(*arguments: Any, called: Any = called, name: str = name, **named: Any) -> Any:
            calls.append(name)
            return called(*arguments, **named)

        monkeypatch.setattr(TieringClient, name, record)
    table = application.table()
    application.round(table, named(range(4), "row"))
    assert calls == ["heartbeat", "release_lease"]


# Limits


# S8
def test_a_round_stops_at_its_bytes_and_the_rest_is_due_at_once(application: Application):
    table = application.table(key=False, freshness="1d")
    for start in range(0, 80, 10):
        application.write(table, named(range(start, start + 10), "row"))
    (bucket,) = application.client.list_buckets([table.path])[table.path]

    first = application.tier(table, limits=PlanLimits(round_bytes=bucket.log_size_bytes // 2))

    assert not first.complete
    assert application.rows(table) == sorted(named(range(40), "row").items())
    (status,) = application.client.list_tiering_statuses(table.path)
    assert status.state is TieringState.PENDING
    assert application.tier(table).complete
    assert application.rows(table) == sorted(named(range(80), "row").items())


# S26
def test_a_round_stops_when_its_time_is_over_and_the_next_one_goes_on(application: Application):
    table = application.table(key=False, freshness="1d")
    for start in range(0, 40, 10):
        application.write(table, named(range(start, start + 10), "row"))
    limits = PlanLimits(append_piece_bytes=1, wave_bytes=1)
    application.on_stage = lambda job, guard: setattr(application, "now", application.now + 20)

    result = application.tier(table, limits=limits, max_round_duration="60s")

    read = application.rows(table)
    assert len(application.jobs) == 3, "a wave that begins within the time is read to its end"
    assert result.complete is False
    assert 0 < len(read) < 40
    assert read == sorted(named(range(len(read)), "row").items())
    known = application.client.lake_snapshot(table.path)
    assert known is not None
    assert list(known.log_end_offsets.values()) == [len(read)]
    (status,) = application.client.list_tiering_statuses(table.path)
    assert status.state is TieringState.PENDING, "the rest is due at once"
    assert application.client.list_tiering_rounds(table.path)[0].force_finished
    application.on_stage = lambda job, guard: None
    assert application.tier(table, limits=limits).complete
    assert application.rows(table) == sorted(named(range(40), "row").items())


def test_without_a_limit_all_is_read_at_once(application: Application):
    table = application.table(key=False)
    for start in range(0, 40, 10):
        application.write(table, named(range(start, start + 10), "row"))
    application.on_stage = lambda job, guard: setattr(application, "now", application.now + 10_000)
    assert application.tier(table, limits=PlanLimits(append_piece_bytes=1, wave_bytes=1)).complete
    assert len(application.jobs) == 1
