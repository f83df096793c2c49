"""The outcomes of rounds: who hears of failures, what is recorded, what is left, and what a round says it wrote."""

from __future__ import annotations

import re

import pytest
from spark_support import Tiering, named

from fluss_tiering.lake.files import FileContent, FileMetrics, LakeFile, VectorPlace
from fluss_tiering.lake.iceberg.table import IcebergTable
from fluss_tiering.lake.protocol import LakeTableSize
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import MAX_PARTITIONS, TieringStats
from fluss_tiering.spark import application
from fluss_tiering.spark.command_line import options_of
from fluss_tiering.spark.maintenance_options import MaintainOptions
from fluss_tiering.spark.options import OPTIONS, TierOptions, parse_arguments
from fluss_tiering.spark.round.result import PieceResult, total_stats
from fluss_tiering.spark.submit import application_arguments


def test_a_worker_s_own_error_is_the_round_s_reason_without_a_traceback(tiering: Tiering, tmp_path, monkeypatch):
    table = tiering.table(primary_key=False)
    tiering.write(table, named(range(4), "row"))
    (tmp_path / "file").touch()
    monkeypatch.setattr(IcebergTable, "piece_location", lambda *_: f"file:{tmp_path}/file/folder-below-a-file/x")

    (result,) = tiering.tier_all(table)

    assert result.error.startswith("a Spark task failed: ")
    assert "\n" not in result.error
    assert tiering.snapshots(table) == []


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


def test_a_puffin_file_counts_once_however_many_vectors_it_has():
    data = LakeFile(FileContent.DATA, 0, "file:/data", 500, FileMetrics(5))
    vectors = [
        LakeFile(FileContent.POSITION_DELETES, 0, "file:/puffin", 70, FileMetrics(1), vector=VectorPlace(at, 30))
        for at in (4, 34)
    ]
    pieces = [
        PieceResult(0, 10, (data, *vectors), 0),
        PieceResult(1, 3, (LakeFile(FileContent.DATA, 1, "file:/more", 9, FileMetrics(3)),), 0),
    ]
    size = LakeTableSize(1000, 8)
    expected = TieringStats(13, 500 + 70 + 9, 3, 77, partitions=("mon", "tue"))
    assert total_stats(pieces, {"tue", "mon"}, 77, size) == expected
    many = {str(number) for number in range(MAX_PARTITIONS + 1)}
    assert total_stats(pieces, many, 77, size).partitions == ()
