"""The lines that rounds write."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from fluss_tiering.model.table import KvSnapshot, TableBucket, TablePath
from fluss_tiering.model.tiering import TieringState, TieringStats
from fluss_tiering.spark.drain import TELL_S, DrainCount
from fluss_tiering.spark.round.plan import LogPiece, SnapshotPiece
from fluss_tiering.spark.round.progress import Progress, outcome_text
from fluss_tiering.spark.round.result import TableResult

PATH = TablePath("warehouse_production", "clickstream_events_enriched_daily")
BUCKET = TableBucket(1, 0)
PIECES = (
    SnapshotPiece(KvSnapshot(BUCKET, 1, 0, 0, 0, ""), to_key=b"m", size_bytes=1 << 20),
    SnapshotPiece(KvSnapshot(BUCKET, 1, 0, 0, 0, ""), from_key=b"m", size_bytes=1 << 20),
    LogPiece(BUCKET, 100, 1_300, size_bytes=3 << 20),
)
AMOUNT = "1,200 log records and 1 KV snapshot, 5.0 MiB"


def result(state: TieringState, error: str | None = None) -> TableResult:
    stats = TieringStats(1_000_000, 3 << 30, 128, lake_snapshot_id=8123456789012345678)
    return TableResult(PATH, state, 12.3, error=error, stats=stats)


NOTHING_NEW = TableResult(PATH, TieringState.TIERED, 0.44)
PART = replace(result(TieringState.TIERED), complete=False)
FAILED = result(TieringState.FAILED, "no space left on the device")
TABLE = str(PATH)


@pytest.mark.parametrize(
    ("told", "line"),
    [
        (
            result(TieringState.TIERED),
            "Tiered: 1,000,000 rows in 128 files, lake snapshot 8123456789012345678 (12.3 s)",
        ),
        (
            PART,
            "Tiered: 1,000,000 rows in 128 files, lake snapshot 8123456789012345678 (12.3 s), more is due",
        ),
        (NOTHING_NEW, "Tiered, nothing new (0.4 s)"),
        (FAILED, "Failed: no space left on the device"),
    ],
    ids=["tiered", "a part", "nothing new", "failed"],
)
def test_an_outcome_is_one_line(told, line):
    assert outcome_text(told) == line


def test_a_round_has_a_line_for_each_step():  # D30, E36
    lines: list[str] = []
    progress = Progress(lines.append, with_errors=False)
    progress.step(PATH, "planning")
    progress.stage(PATH, "fluss-tiering-1-7", 12, PIECES)
    progress.done(NOTHING_NEW)
    progress.done(FAILED)
    assert lines == [
        f"{TABLE}: planning",
        f"{TABLE}: reading and writing {AMOUNT} in 12 tasks (Spark job group fluss-tiering-1-7)",
        f"{TABLE}: Tiered, nothing new (0.4 s)",
        f"{TABLE}: Failed",  # The command lists the errors of all tables at its end.
    ]


def test_a_drain_of_many_tables_tells_how_far_it_is():
    lines: list[str] = []
    now = [0.0]
    log = Progress(lines.append)
    count = DrainCount(log.drained, clock=lambda: now[0])
    paths = [TablePath("shop", f"t{number}") for number in range(5)]
    for path in paths[:2]:
        count.begin(path)
        now[0] += 1
    count.end(paths[0], replace(result(TieringState.TIERED), path=paths[0]))
    count.look(lambda: paths[2:])
    assert lines == [], "a line every ten seconds is enough"
    now[0] = TELL_S
    count.look(lambda: paths[2:])
    told = "1,000,000 rows, 3.0 GiB; longest running: shop.t1 9 s"
    assert lines == [f"1 of 5 tables done, {told}"]

    count.end(paths[1], None)
    count.look(list)
    count.begin(paths[0])
    now[0] += TELL_S
    count.look(lambda: paths[1:2])
    assert lines[1:] == ["0 of 2 tables done, 0 rows, 0 Bytes; longest running: shop.t0 10 s"], "it had been idle"


def test_a_command_that_goes_on_for_months_tells_the_reason_of_a_failure_at_once():
    lines: list[str] = []
    progress = Progress(lines.append)
    progress.done(FAILED)
    assert lines == [f"{TABLE}: Failed: no space left on the device"]


def test_a_failure_is_an_error_in_the_log(caplog):
    caplog.set_level(logging.INFO, "fluss_tiering")
    progress = Progress()
    progress.step(PATH, "planning")
    progress.done(NOTHING_NEW)
    progress.done(FAILED)
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        ("INFO", f"{TABLE}: planning"),
        ("INFO", f"{TABLE}: Tiered, nothing new (0.4 s)"),
        ("ERROR", f"{TABLE}: Failed: no space left on the device"),
    ]
