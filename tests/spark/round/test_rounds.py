"""Rounds of tables with a real server, Spark and Iceberg."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

from rich.console import Console
from spark_support import BY_KEY, Tiering, named

from fluss_tiering.client import TieringClient, lease_latest_snapshots
from fluss_tiering.lake.iceberg import summary
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake import LakeSnapshot
from fluss_tiering.model.table import TableBucket
from fluss_tiering.model.tiering import TieringState
from fluss_tiering.spark import application
from fluss_tiering.spark.options import TierOptions
from fluss_tiering.spark.round import lease as leases
from fluss_tiering.spark.round import round as rounds
from fluss_tiering.spark.round.plan import PlanLimits
from fluss_tiering.spark.round.progress import TerminalProgress


def test_a_log_table_is_tiered_round_by_round(tiering: Tiering):
    table = tiering.table(primary_key=False, num_buckets=3)
    tiering.write(table, named(range(10), "first"))

    first = tiering.tier(table)
    tiering.write(table, named(range(10, 25), "second"))
    second = tiering.tier(table)

    assert tiering.lake_rows(table) == sorted({**named(range(10), "first"), **named(range(10, 25), "second")}.items())
    assert (first.state, first.stats.rows, second.stats.rows) == (TieringState.TIERED, 10, 15)
    assert second.epoch > first.epoch
    assert tiering.client.lake_snapshot(table.path).snapshot_id == second.stats.lake_snapshot_id


def test_rows_of_a_log_carry_their_bucket_offset_and_commit_time(tiering: Tiering):
    table = tiering.table(primary_key=False, num_buckets=2)
    tiering.write(table, named(range(40), "row"))

    tiering.tier(table)

    rows = tiering.lake(table)
    for bucket in tiering.client.list_buckets([table.path])[table.path]:
        offsets = [row["__offset"] for row in rows if row["__bucket"] == bucket.bucket.bucket]
        assert sorted(offsets) == list(range(bucket.log_end_offset))
    (written,) = {round(row["__timestamp"].timestamp() * 1000) for row in rows}
    assert table.created_time <= written <= table.created_time + 60_000


def test_a_first_round_takes_the_snapshot_and_the_log_behind_it_in_one_commit(tiering: Tiering):
    table = tiering.table(num_buckets=2)
    tiering.write(table, named(range(20), "old"))
    tiering.client.take_kv_snapshots([table.path])
    tiering.write(table, named(range(5, 25), "new"))
    tiering.delete(table, [0, 5])

    result = tiering.tier(table)

    expected = {**named(range(20), "old"), **named(range(5, 25), "new")}
    del expected[0], expected[5]
    assert tiering.lake_rows(table) == sorted(expected.items())
    from_snapshot = [row for row in tiering.lake(table) if row.name.startswith("old")]
    assert {(row["__offset"], round(row["__timestamp"].timestamp() * 1000)) for row in from_snapshot} == {(-1, -1)}
    assert len({row.committed_at for row in tiering.snapshots(table)}) <= 2
    assert tiering.client.list_leases() == []
    assert result.stats.rows == 20 + 20 + 2


def test_changes_replace_and_delete_what_is_in_the_lake(tiering: Tiering):
    table = tiering.table(num_buckets=3)
    tiering.write(table, named(range(50), "first"))
    tiering.tier(table)
    tiering.write(table, named(range(20, 60), "second"))
    tiering.write(table, named(range(30, 40), "third"))
    tiering.delete(table, [1, 25, 35])
    tiering.write(table, {35: "back again"})
    tiering.delete(table, [59, 1000])

    tiering.tier(table)

    expected = {**named(range(50), "first"), **named(range(20, 60), "second"), **named(range(30, 40), "third")}
    expected[35] = "back again"
    del expected[1], expected[25], expected[59]
    assert tiering.lake_rows(table) == sorted(expected.items())


def test_a_round_that_is_cut_into_many_pieces_is_the_same(tiering: Tiering, monkeypatch):
    monkeypatch.setattr(
        application, "PlanLimits", lambda **given: PlanLimits(**given, append_piece_bytes=1, change_piece_bytes=200)
    )
    table = tiering.table(properties=BY_KEY)
    tiering.write(table, named(range(4), "first"))
    tiering.tier(table)
    expected = named(range(4), "first")
    for step in range(6):
        tiering.write(table, named(range(step, step + 4), f"step {step}"))
        expected.update(named(range(step, step + 4), f"step {step}"))
    tiering.delete(table, [8])
    del expected[8]

    tiering.tier(table)

    assert tiering.lake_rows(table) == sorted(expected.items())
    assert len(tiering.snapshots(table)) > 3


# D52: readers apply the deletes of each snapshot to all rows before it
def test_a_hot_bucket_with_much_to_catch_up_commits_in_few_snapshots(tiering: Tiering, monkeypatch):
    monkeypatch.setattr(application, "PlanLimits", lambda **given: PlanLimits(**given, change_piece_bytes=1))
    table = tiering.table(properties=BY_KEY)
    expected = named(range(20), "first")
    tiering.write(table, expected)
    tiering.tier(table)
    for step in range(40):
        tiering.write(table, named(range(step % 7, step % 7 + 5), f"step {step}"))
        expected.update(named(range(step % 7, step % 7 + 5), f"step {step}"))

    tiering.tier(table)

    assert tiering.lake_rows(table) == sorted(expected.items())
    assert len(tiering.snapshots(table)) == 1 + 16


# D52: the driver receives the results of a bounded number of pieces at once
def test_a_round_of_many_pieces_runs_several_jobs(tiering: Tiering, monkeypatch):
    monkeypatch.setattr(rounds, "_MAX_PIECES_IN_JOB", 2)
    table = tiering.table(num_buckets=5)
    expected = {}
    for step in range(2):
        tiering.write(table, named(range(step * 10, step * 10 + 30), f"step {step}"))
        expected.update(named(range(step * 10, step * 10 + 30), f"step {step}"))
        assert tiering.tier(table).stats.rows == 30

    assert tiering.lake_rows(table) == sorted(expected.items())
    assert len(set(tiering.files_on_disk(table))) == len(tiering.files_on_disk(table))


# S21
def test_an_empty_round_is_finished_without_a_lake_snapshot(tiering: Tiering):
    table = tiering.table(primary_key=False)
    tiering.write(table, named(range(3), "row"))
    tiering.tier(table)
    before = tiering.snapshots(table)

    result = tiering.tier(table)

    assert result.state is TieringState.TIERED
    assert result.stats.lake_snapshot_id is None
    assert tiering.snapshots(table) == before
    newest, *_ = tiering.rounds(table)
    assert (newest.state, newest.stats.lake_snapshot_id) == (TieringState.TIERED, None)


# S21, regression: Fluss #3892
def test_a_range_that_holds_no_row_advances_the_offsets(tiering: Tiering):
    table = tiering.table()
    tiering.write(table, named(range(3), "row"))
    tiering.delete(table, range(3))
    tiering.client.take_kv_snapshots([table.path])

    result = tiering.tier(table)

    assert tiering.lake_rows(table) == []
    assert result.stats.lake_snapshot_id is not None
    assert tiering.client.lake_snapshot(table.path) == LakeSnapshot(
        table.table_id, result.stats.lake_snapshot_id, {TableBucket(table.table_id, 0): 6}
    )


# D49: the offsets of many buckets lie in a file of the lake
def test_a_commit_whose_offsets_lie_in_a_file_is_registered_by_the_next_round(tiering: Tiering, monkeypatch):
    monkeypatch.setattr(summary, "_MAX_OFFSETS_LENGTH", 0)
    table = tiering.table(num_buckets=3)
    tiering.write(table, named(range(20), "first"))
    with monkeypatch.context() as away:

        def refuse(*_given: object, **_more: object) -> None:
            raise FlussTieringError(ErrorCode.UNAVAILABLE, "the server is away")

        away.setattr(TieringClient, "commit_lake_snapshot", refuse)
        (failed,) = tiering.tier_all(table)
        assert failed.failed
    assert tiering.client.lake_snapshot(table.path) is None
    ends = tiering.log_ends(table)
    tiering.client.resume_tables([table.path])
    tiering.write(table, named(range(10, 30), "second"))

    result = tiering.tier(table)

    assert not result.failed
    assert result.stats.rows == 20
    assert tiering.log_ends(table) != ends
    assert tiering.lake_rows(table) == sorted({**named(range(20), "first"), **named(range(10, 30), "second")}.items())


# S8
def test_a_round_stops_at_its_limit_and_the_rest_is_due_at_once(tiering: Tiering):
    table = tiering.table(primary_key=False, freshness="1d")
    rows = {}
    for step in range(8):
        tiering.write(table, named(range(step * 10, step * 10 + 10), "row"))
        rows.update(named(range(step * 10, step * 10 + 10), "row"))
    size = sum(bucket.log_size_bytes for bucket in tiering.client.list_buckets([table.path])[table.path])

    first = tiering.tier(table, max_round_bytes=size // 2)

    assert not first.complete
    assert tiering.lake_rows(table) == sorted(rows.items())[:40]
    (status,) = tiering.client.list_tiering_statuses(table.path)
    assert status.state is TieringState.PENDING
    assert tiering.tier(table).complete
    assert tiering.lake_rows(table) == sorted(rows.items())


def test_many_tables_are_tiered_side_by_side_and_a_bad_one_touches_no_other(tiering: Tiering):
    good = [tiering.table(primary_key=number % 2 == 0) for number in range(5)]
    bad = tiering.table()
    for table in [*good, bad]:
        tiering.write(table, named(range(4), "row"))
    tiering.tier(bad)
    tiering.spark.sql(f"ALTER TABLE {tiering.name(bad)} DROP COLUMN name")
    tiering.write(bad, named(range(4), "more"))

    results = tiering.tier_all(*good[:2], bad, *good[2:])

    assert [result.path for result in results] == [table.path for table in [*good[:2], bad, *good[2:]]]
    assert [result.failed for result in results] == [False, False, True, False, False, False]
    for table in good:
        assert tiering.lake_rows(table) == sorted(named(range(4), "row").items())
    # S10: the reason is on record.
    newest, *_ = tiering.rounds(bad)
    assert newest.state is TieringState.FAILED
    assert "the column `name` string is missing" in newest.error
    assert results[2].recorded


# L13, L24
def test_the_outcome_comes_before_the_release_and_each_table_is_released_on_its_own(tiering: Tiering, monkeypatch):
    calls = []
    for method in ("heartbeat", "release_lease"):
        original = getattr(TieringClient, method)

        def record(self, *args, _original=original, _name=method, **kwargs):
            calls.append((_name, kwargs.get("finished"), args))
            return _original(self, *args, **kwargs)

        monkeypatch.setattr(TieringClient, method, record)
    tables = [tiering.table() for _ in range(2)]
    for table in tables:
        tiering.write(table, named(range(4), "row"))
    acquired = lease_latest_snapshots(tiering.client, "two tables", [table.path for table in tables], 60_000)
    assert len(tiering.client.list_leases("two tables")[0].snapshots) == 2

    tiering.tier_all(*tables, lease_id="two tables", attempt_token=acquired.attempt_token)

    for table in tables:
        finished = next(
            index
            for index, (name, entries, _) in enumerate(calls)
            if name == "heartbeat" and entries and entries[0].table_id == table.table_id
        )
        released = next(
            index
            for index, (name, _, args) in enumerate(calls)
            if name == "release_lease" and {bucket.table_id for bucket in args[1]} == {table.table_id}
        )
        assert finished < released
    assert tiering.client.list_leases("two tables") == []


def test_a_bucket_that_the_given_lease_does_not_pin_is_leased_by_the_driver(tiering: Tiering):
    table = tiering.table()
    acquired = lease_latest_snapshots(tiering.client, "acquired while empty", [table.path], 60_000)
    tiering.write(table, named(range(4), "row"))
    tiering.client.take_kv_snapshots([table.path])

    tiering.tier(table, lease_id="acquired while empty", attempt_token=acquired.attempt_token)

    assert tiering.lake_rows(table) == sorted(named(range(4), "row").items())
    assert {row["__offset"] for row in tiering.lake(table)} == {-1}
    assert tiering.client.list_leases() == []


def test_rows_that_arrive_while_the_driver_leases_are_not_lost(tiering: Tiering, monkeypatch):
    table = tiering.table()
    acquired = lease_latest_snapshots(tiering.client, "rows arrive", [table.path], 60_000)
    tiering.write(table, named(range(4), "row"))

    def lease_later(*args):
        tiering.write(table, named(range(4, 8), "row"))
        tiering.client.take_kv_snapshots([table.path])
        return lease_latest_snapshots(*args)

    monkeypatch.setattr(leases, "lease_latest_snapshots", lease_later)

    tiering.tier(table, lease_id="rows arrive", attempt_token=acquired.attempt_token)

    assert tiering.lake_rows(table) == sorted(named(range(8), "row").items())


# L22: the driver's own acquire must not make its owner's token an old one
def test_the_owner_s_attempt_token_stays_the_newest(tiering: Tiering):
    table = tiering.table()
    acquired = lease_latest_snapshots(tiering.client, "the owner's", [table.path], 60_000)
    tiering.write(table, named(range(4), "row"))

    tiering.tier(table, lease_id="the owner's", attempt_token=acquired.attempt_token)

    outcome = tiering.client.lease_outcome("the owner's", acquired.attempt_token)
    assert outcome.newest_attempt_token == acquired.attempt_token


def test_a_leased_snapshot_whose_bucket_was_tiered_since_is_not_read_again(tiering: Tiering):
    table = tiering.table()
    tiering.write(table, named(range(4), "row"))
    acquired = lease_latest_snapshots(tiering.client, "queued for hours", [table.path], 60_000)
    tiering.tier(table)
    tiering.write(table, named(range(4, 6), "row"))

    result = tiering.tier(table, lease_id="queued for hours", attempt_token=acquired.attempt_token)

    assert result.stats.rows == 2
    assert tiering.lake_rows(table) == sorted(named(range(6), "row").items())
    assert tiering.client.list_leases("queued for hours") == []


def test_workers_that_cannot_open_the_storage_s_files_read_through_the_server(tiering: Tiering, monkeypatch):
    describe = TieringClient.describe_storage
    monkeypatch.setattr(TieringClient, "describe_storage", lambda client: replace(describe(client), data_dir=""))
    log, keyed = tiering.table(primary_key=False, num_buckets=2), tiering.table(num_buckets=2)
    for table in (log, keyed):
        tiering.write(table, named(range(20), "first"))
    tiering.client.take_kv_snapshots([keyed.path])
    tiering.write(keyed, named(range(10, 30), "second"))

    results = tiering.tier_all(log, keyed)

    assert [result.error for result in results] == [None, None]
    assert tiering.lake_rows(log) == sorted(named(range(20), "first").items())
    assert tiering.lake_rows(keyed) == sorted({**named(range(20), "first"), **named(range(10, 30), "second")}.items())


def test_bars_in_a_terminal_end_with_the_outcome(tiering: Tiering):
    table = tiering.table(primary_key=False)
    tiering.write(table, named(range(7), "row"))
    terminal = Console(file=StringIO(), force_terminal=True, width=200)

    progress = TerminalProgress(tiering.spark.sparkContext, terminal)
    application.run(TierOptions(server=tiering.target, tables=(table.path,)), tiering.spark, progress)

    shown = terminal.file.getvalue()
    assert f"{table.path}" in shown
    assert "Tiered: 7 rows in 1 file" in shown
