"""How rounds end on a terminal."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from fluss_tiering.model.table import KvSnapshot, TableBucket, TablePath
from fluss_tiering.model.tiering import TieringState, TieringStats
from fluss_tiering.spark.drain import TELL_S, DrainCount
from fluss_tiering.spark.round.plan import LogPiece, SnapshotPiece
from fluss_tiering.spark.round.progress import LogProgress, TerminalProgress, outcome_text
from fluss_tiering.spark.round.result import TableResult
from waiting import wait_until

PATH = TablePath("warehouse_production", "clickstream_events_enriched_daily")
BUCKET = TableBucket(1, 0)
PIECES = (
    SnapshotPiece(KvSnapshot(BUCKET, 1, 0, 0, 0, ""), to_key=b"m", size_bytes=1 << 20),
    SnapshotPiece(KvSnapshot(BUCKET, 1, 0, 0, 0, ""), from_key=b"m", size_bytes=1 << 20),
    LogPiece(BUCKET, 100, 1_300, size_bytes=3 << 20),
)
AMOUNT = "1,200 log records and 1 KV snapshot, 5.0 MiB"
NO_SPARK = cast("Any", SimpleNamespace(statusTracker=lambda: None))


def result(state: TieringState, error: str | None = None) -> TableResult:
    stats = TieringStats(1_000_000, 3 << 30, 128, lake_snapshot_id=8123456789012345678)
    return TableResult(PATH, state, 12.3, error=error, stats=stats)


@pytest.mark.parametrize("width", [80, 100, 160])
def test_a_bar_is_readable_in_the_width_of_a_terminal(width):  # D27
    terminal = Console(file=StringIO(), force_terminal=True, width=width, color_system=None)
    with TerminalProgress(NO_SPARK, terminal) as progress:
        progress.step(PATH, "planning")
        progress.done(result(TieringState.TIERED))
    shown = cast("StringIO", terminal.file).getvalue()
    assert "…" not in shown
    for word in ("warehouse_production", "Tiered:", "1,000,000", "128"):
        assert word in shown
    assert re.search(r"files\s+\d+:\d\d:\d\d", shown) or width < 160, "the time comes right after the outcome"


def test_a_bar_leaves_the_error_to_the_list(capsys, monkeypatch):  # D30
    monkeypatch.setenv("COLUMNS", "160")
    with TerminalProgress(NO_SPARK) as progress:
        progress.done(result(TieringState.FAILED, "no space left on the device"))
    shown = capsys.readouterr()
    assert "Failed" in shown.err
    assert "no space" not in shown.err
    assert not shown.out, "results go to standard output, bars do not"


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


def test_the_log_of_a_round_has_a_line_for_each_step():  # E36
    lines: list[str] = []
    with LogProgress(lines.append, with_errors=False) as progress:
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
    log = LogProgress(lines.append)
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

    terminal = Console(file=StringIO(), force_terminal=True, width=160, color_system=None)
    with TerminalProgress(NO_SPARK, terminal) as progress:
        progress.drained(1, 5, told)
        progress._bars.refresh()
    shown = cast("StringIO", terminal.file).getvalue()
    assert re.search(rf"all tables +.* 1/5 +{told}", shown)


def test_a_command_that_goes_on_for_months_tells_the_reason_of_a_failure_at_once():
    lines: list[str] = []
    with LogProgress(lines.append) as progress:
        progress.done(FAILED)
    assert lines == [f"{TABLE}: Failed: no space left on the device"]


def test_a_failure_is_an_error_in_the_log(caplog):
    caplog.set_level(logging.INFO, "fluss_tiering")
    with LogProgress() as progress:
        progress.step(PATH, "planning")
        progress.done(NOTHING_NEW)
        progress.done(FAILED)
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        ("INFO", f"{TABLE}: planning"),
        ("INFO", f"{TABLE}: Tiered, nothing new (0.4 s)"),
        ("ERROR", f"{TABLE}: Failed: no space left on the device"),
    ]


class Tracker:
    """Spark's status tracker with one job of two stages, which have ended these many tasks."""

    def __init__(self) -> None:
        self.ended = {11: 0, 12: 0}
        self.asked: list[str] = []

    def getJobIdsForGroup(self, group: str) -> list[int]:  # noqa: N802 - Spark's name, as below
        self.asked.append(group)
        # Spark forgets old jobs and stages, and then answers None.
        return [1, 2] if group == "fluss-tiering-1-7" else []

    def getJobInfo(self, job: int) -> Any:  # noqa: N802
        return SimpleNamespace(stageIds=[11, 12, 13]) if job == 1 else None

    def getStageInfo(self, stage: int) -> Any:  # noqa: N802
        return SimpleNamespace(numCompletedTasks=self.ended[stage]) if stage in self.ended else None


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """Return what a terminal shows, without the lines that were painted over."""
    monkeypatch.setattr("fluss_tiering.spark.round.progress._POLL_S", 0.01)
    screens: list[Console] = []

    def wide(**_: Any) -> Console:
        screens.append(Console(file=StringIO(), force_terminal=True, width=200, color_system=None))
        return screens[-1]

    monkeypatch.setattr("fluss_tiering.spark.round.progress.Console", wide)

    def last() -> str:
        return cast("StringIO", screens[-1].file).getvalue().split("\x1b[2K")[-1]

    return last


def test_a_bar_grows_as_tasks_end(shown):  # E36
    tracker = Tracker()
    with TerminalProgress(cast("Any", SimpleNamespace(statusTracker=lambda: tracker))) as progress:
        progress.step(PATH, "planning")
        wait_until(lambda: "planning" in shown())
        assert "0/?" in shown()
        progress.stage(PATH, "fluss-tiering-1-7", 12, PIECES)
        wait_until(lambda: f" reading and writing {AMOUNT}" in shown() and " 0/12" in shown())
        tracker.ended = {11: 5, 12: 2}
        wait_until(lambda: " 7/12" in shown())
        progress.step(PATH, "committing")
        tracker.asked.clear()
        wait_until(lambda: "committing" in shown())
        progress.done(PART)
        wait_until(lambda: "12/12" in shown())
        assert not tracker.asked, "the stage has ended"
    assert shown().count(TABLE) == 1, "a table has one bar"
    assert "None" not in shown()
    assert "Tiered: 1,000,000 rows in 128 files, more is due" in shown()
