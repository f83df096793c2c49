"""How rounds end on a terminal."""

from __future__ import annotations

from io import StringIO
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import TieringState, TieringStats
from fluss_tiering.spark.round.progress import TerminalProgress
from fluss_tiering.spark.round.result import TableResult

PATH = TablePath("warehouse_production", "clickstream_events_enriched_daily")
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


def test_a_bar_leaves_the_error_to_the_list(capsys, monkeypatch):  # D30
    monkeypatch.setenv("COLUMNS", "160")
    with TerminalProgress(NO_SPARK) as progress:
        progress.done(result(TieringState.FAILED, "no space left on the device"))
    shown = capsys.readouterr()
    assert "Failed" in shown.err
    assert "no space" not in shown.err
    assert not shown.out, "results go to standard output, bars do not"
