"""The outcomes of rounds that fail: who hears of it, what is recorded, and what is left."""

from __future__ import annotations

import re

import pytest
from spark_support import Tiering, named

from fluss_tiering.client import TieringClient
from fluss_tiering.lake.iceberg.table import IcebergTable
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import TieringState
from fluss_tiering.spark import application
from fluss_tiering.spark.command_line import options_of
from fluss_tiering.spark.maintenance_options import MaintainOptions
from fluss_tiering.spark.options import OPTIONS, TierOptions, parse_arguments
from fluss_tiering.spark.round.progress import outcome_text
from fluss_tiering.spark.submit import application_arguments


def test_a_lake_that_somebody_else_changes_during_the_round_is_a_conflict(tiering: Tiering, monkeypatch):
    table = tiering.table(primary_key=False)
    tiering.write(table, named(range(3), "row"))
    tiering.tier(table)
    tiering.write(table, named(range(3, 6), "row"))
    commit = IcebergTable.commit

    def commit_after_somebody_else(*args, **kwargs) -> int:
        tiering.spark.sql(
            f"INSERT INTO {tiering.name(table)} VALUES (99, 'theirs', 0, 0, TIMESTAMP '2020-01-01 00:00:00')"
        )
        return commit(*args, **kwargs)

    monkeypatch.setattr(IcebergTable, "commit", commit_after_somebody_else)
    (result,) = tiering.tier_all(table)
    monkeypatch.undo()

    assert "changed by somebody else during the round" in result.error
    newest, *_ = tiering.rounds(table)
    assert (newest.state, newest.error) == (TieringState.FAILED, result.error)
    assert set(tiering.files(table)) == set(tiering.files_on_disk(table))
    tiering.tier(table)
    assert tiering.lake_rows(table) == [*sorted(named(range(6), "row").items()), (99, "theirs")]


def test_a_lake_commit_that_was_not_registered_is_registered_with_its_own_offsets(tiering: Tiering, monkeypatch):
    table = tiering.table()
    tiering.write(table, named(range(4), "first"))

    def lost(*_args, **_kwargs):
        raise FlussTieringError(ErrorCode.UNAVAILABLE, "the server is away")

    monkeypatch.setattr(TieringClient, "commit_lake_snapshot", lost)
    (failed,) = tiering.tier_all(table)
    monkeypatch.undo()
    tiering.write(table, named(range(2, 6), "second"))
    again = tiering.tier(table)

    assert failed.error == "the server is away"
    assert again.stats.rows == 4
    assert tiering.lake_rows(table) == sorted({**named(range(4), "first"), **named(range(2, 6), "second")}.items())


# S5, L18: fenced between prepare and the lake's commit; nothing is deleted that the lake may refer to
def test_a_round_that_is_taken_over_is_refused_by_the_server_before_it_reaches_the_lake(tiering: Tiering, monkeypatch):
    table = tiering.table()
    tiering.write(table, named(range(4), "row"))
    prepare = TieringClient.prepare_lake_snapshot

    def taken_over(client, *args, **kwargs):
        lease = tiering.rounds(table)[0]
        tiering.client.claim_tables([table.path], lease.lease_id, lease.attempt_token, "somebody else")
        return prepare(client, *args, **kwargs)

    monkeypatch.setattr(TieringClient, "prepare_lake_snapshot", taken_over)
    (result,) = tiering.tier_all(table)

    assert "is not its present one" in result.error
    assert tiering.snapshots(table) == []
    assert tiering.files_on_disk(table) == []


# S22
def test_a_table_that_another_round_holds_is_waited_for_and_then_named(tiering: Tiering):
    table = tiering.table()
    (claim,) = tiering.client.claim_tables([table.path], "somebody else's", None, "their driver")

    (result,) = tiering.tier_all(table, claim_timeout_s=0.5)

    assert "is being tiered" in result.error
    assert "their driver" in result.error
    assert "waited 0.5 s" in result.error
    assert not result.recorded
    # Nobody could read this failure from the table's status, so the exit code has to tell.
    assert application.exit_code([result], outcome_in_status=True) == 1
    assert tiering.rounds(table)[0].tiering_epoch == claim.tiering_epoch


def test_failures_that_are_on_record_leave_the_exit_code_to_the_caller_s_choice(tiering: Tiering, monkeypatch):
    table = tiering.table()
    tiering.write(table, named(range(4), "row"))
    monkeypatch.setattr(IcebergTable, "file_writer", lambda _: 1 / 0)

    (result,) = tiering.tier_all(table)

    assert result.error.startswith("ZeroDivisionError")
    assert tiering.rounds(table)[0].error == result.error
    assert application.exit_code([result], outcome_in_status=True) == 0
    assert application.exit_code([result], outcome_in_status=False) == 1


def test_a_worker_s_own_error_is_the_round_s_reason_without_a_traceback(tiering: Tiering, tmp_path, monkeypatch):
    table = tiering.table(primary_key=False)
    tiering.write(table, named(range(4), "row"))
    (tmp_path / "file").touch()
    monkeypatch.setattr(IcebergTable, "piece_location", lambda *_: f"file:{tmp_path}/file/folder-below-a-file/x")

    (result,) = tiering.tier_all(table)

    assert result.error.startswith("a Spark task failed: ")
    assert "\n" not in result.error
    assert tiering.snapshots(table) == []


def test_a_table_that_was_dropped_does_not_keep_the_others_from_being_tiered(tiering: Tiering):
    table, dropped = tiering.table(), tiering.table()
    tiering.write(table, named(range(4), "row"))
    tiering.client.drop_table(dropped.path)

    results = tiering.tier_all(dropped, table)

    assert [result.failed for result in results] == [True, False]
    assert str(dropped.path) in results[0].error
    assert tiering.lake_rows(table) == sorted(named(range(4), "row").items())


@pytest.mark.slow
def test_a_server_that_cannot_be_reached_ends_the_application_with_a_message(caplog):
    code = application.main(["--server", "127.0.0.1:1", "db.t"])

    assert code == 2
    assert "cannot reach the tiering server at 127.0.0.1:1" in caplog.text
    assert "Traceback" not in caplog.text


def test_an_unknown_table_ends_the_application_with_a_message(tiering: Tiering, caplog):
    assert application.main(["--server", tiering.target, "db.unknown"]) == 2
    assert "db.unknown" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--server"),
        (["--server", "h:1"], "DATABASE.TABLE"),
        (["--server", "h:1", "orders"], "'orders' is not a table path"),
        (["--server", "h:1", "--max-round-bytes", "0", "db.t"], "'0' is not a size of at least 1b"),
        (["--server", "h:1", "--max-round-bytes", "1_000", "db.t"], "'1_000' is not a size: expected a whole number"),
        (["--server", "h:1", "--worker-buffer-bytes", "1kb", "db.t"], "'1kb' is not a size of at least 1mb"),
        (["--server", "h:1", "--table-concurrency", " 5 ", "db.t"], "' 5 ' is not a whole number from 1 to 2147483647"),
        (["--server", "h:1", "--claim-timeout", "nan", "db.t"], "'nan' is not a number of at least 0"),
        (["--server", "h:1", "--max-round-duration", "long", "db.t"], "for example 3min or 3 minutes, or freshness"),
    ],
)
def test_wrong_arguments_end_with_status_2(arguments, said, capsys):
    with pytest.raises(SystemExit) as exited:
        application.main(arguments)

    assert exited.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [{"claim_timeout_s": -1}, {"max_round_bytes": 0}, {"table_concurrency": 0}])
def test_options_made_in_code_have_the_same_bounds(wrong):
    with pytest.raises(FlussTieringError, match="is not a") as refused:
        TierOptions(server="h:1", tables=(TablePath("db", "a"),), **wrong)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_the_command_line_says_all_that_the_options_hold():
    options = TierOptions(
        server="h:1",
        tables=(TablePath("db", "a"), TablePath("db", "b")),
        lease_id="lease",
        attempt_token=7,
        lease_duration_ms=1000,
        claim_timeout_s=2.5,
        max_round_bytes=9,
        max_round_duration="10min",
        skip_missing_log=True,
        worker_buffer_bytes=5 << 20,
        table_concurrency=3,
        outcome_in_status=True,
        drain=True,
        follow=True,
        time_budget="1h",
        maintenance_interval="2h",
        maintenance_bytes="3g",
        maintenance_cores=2,
    )

    few = TierOptions(server="h:1", tables=options.tables)
    assert all(getattr(options, each.name) != each.default for each in OPTIONS.values() if each.name != "master")
    assert parse_arguments(application_arguments(options)) == options
    assert parse_arguments(application_arguments(few)) == few


@pytest.mark.parametrize("kind", [TierOptions, MaintainOptions])
def test_options_of_bytes_take_units(kind):
    sizes = [each for each in options_of(kind).values() if "bytes" in each.name]
    assert sizes
    for each in sizes:
        assert each.parse("5 mb") in (5 << 20, "5 mb")
        assert each.about.metavar == "SIZE"
        assert re.search(r"\d[mg]b", each.about.help)


def test_outcomes_in_one_line(tiering: Tiering):
    table = tiering.table()
    tiering.write(table, named(range(4), "row"))

    first, second = tiering.tier(table), tiering.tier(table)

    assert "4 rows in 1 file" in outcome_text(first)
    assert "nothing new" in outcome_text(second)


# S11
def test_secrets_stay_out_of_what_is_logged_and_recorded(tiering: Tiering, monkeypatch, caplog):
    table = tiering.table()
    tiering.write(table, named(range(4), "row"))

    def refused(_):
        raise FlussTieringError(ErrorCode.STORAGE, "could not open jdbc:postgresql://db/lake?user=me&password=hunter2")

    monkeypatch.setattr(IcebergTable, "file_writer", refused)

    (result,) = tiering.tier_all(table)

    for text in (result.error, tiering.rounds(table)[0].error, caplog.text):
        assert "could not open" in text
        assert "hunter2" not in text
