"""The parts of the page that need no server: texts, charts, and the threads that ask."""

from __future__ import annotations

import asyncio
import itertools
import re
import threading
from dataclasses import replace

import pytest

from airflow_provider_fluss.plugins.page import text
from airflow_provider_fluss.plugins.page.chart import HEIGHT, WIDTH, charts, folded, took
from airflow_provider_fluss.plugins.page.html import _environment
from airflow_provider_fluss.plugins.page.known import THREADS_OF_A_CONNECTION, in_thread
from airflow_provider_fluss.plugins.route import dag_run_href, task_log_href
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import RoundOrigin, TieringRound, TieringState, TieringStats, TieringStatus


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [
        *((None, "–"), (0, "0 ms"), (999, "999 ms"), (1_000, "1 s"), (61_500, "1 min 1 s"), (3_600_000, "1 h")),
        *((3_601_000, "1 h"), (7_260_000, "2 h 1 min"), (90_000_000, "1 d 1 h"), (86_400_000 * 400, "400 d")),
    ],
)
def test_a_duration_has_its_two_largest_units(milliseconds, shown):
    assert text.duration(milliseconds) == shown


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [
        *((0, "0 ms"), (999, "999 ms"), (1_000, "1 s"), (1_040, "1 s"), (1_900, "1.9 s"), (1_960, "2 s")),
        *(
            (59_940, "59.9 s"),
            (59_960, "1 min"),
            (61_500, "1 min 1 s"),
            (119_990, "1 min 59 s"),
            (7_260_000, "2 h 1 min"),
        ),
    ],
)
def test_what_took_less_than_a_minute_has_tenths_of_a_second(milliseconds, shown):
    assert text.took(milliseconds) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "now"), (-1, "1 s ago"), (-119, "1 min ago"), (59, "in 59 s"), (7_200, "in 2 h"), (-86_400, "1 d ago")],
)
def test_a_distance_has_its_largest_unit(seconds, shown):
    assert text.distance(1_000_000_000_000 + seconds * 1000, 1_000_000_000_000) == shown


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (None, "–"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (1 << 20, "1.0 MiB"),
        (5 << 50, "5.0 PiB"),
    ],
)
def test_a_size_has_a_unit(number, shown):
    assert text.size(number) == shown


def a_round(epoch: int, state: TieringState, start: int, end: int | None, rows: int | None) -> TieringRound:
    stats = None if rows is None else TieringStats(rows, rows * 10, 1, lake_snapshot_id=7)
    return TieringRound(1, TablePath("a", "b"), epoch, state, "lease", 1, "driver", start, end, stats=stats)


def test_a_chart_has_a_bar_for_each_round_in_proportion():
    rounds = [
        a_round(3, TieringState.TIERING, 5_000, None, None),
        a_round(2, TieringState.FAILED, 3_000, 4_000, None),
        replace(a_round(0, TieringState.FAILED, 0, 1_000, None), interrupted=True),
        a_round(1, TieringState.TIERED, 1_000, 3_000, 500),
    ]
    durations, rows, _ = charts(rounds, now=9_000)
    assert [(bar.epoch, bar.outcome) for bar in durations.bars] == [
        *((0, "Interrupted"), (1, "Tiered"), (2, "Failed"), (3, "Tiering"))
    ]
    heights = [bar.height for bar in durations.bars]
    assert heights == [heights[3] / 4, heights[3] / 2, heights[3] / 4, heights[3]]  # 1, 2, 1 and so far 4 s
    assert durations.bars[1].title == "1970-01-01 00:00:01 UTC, epoch 1: Tiered, 2 s"
    assert durations.summary == "Duration of each round: 4 rounds, 1 of them failed; the highest value is 4 s."
    assert rows.lines[0][1] == "500"


def test_a_chart_has_the_lag_that_each_round_ended():  # E31
    rounds = [
        replace(a_round(1, TieringState.TIERED, 1_000, 3_000, 5), waiting_since=500),
        replace(a_round(2, TieringState.FAILED, 4_000, 9_000, None), waiting_since=3_500),
        replace(a_round(3, TieringState.TIERING, 10_000, None, None), waiting_since=3_500),
        a_round(4, TieringState.TIERED, 20_000, 21_000, 5),
    ]
    *_, lags = charts(rounds, now=14_500)
    heights = [bar.height for bar in lags.bars]
    assert heights == [round(heights[2] * 2.5 / 11, 2), heights[2] / 2, heights[2], 2.0]  # 2.5, 5.5, so far 11 s
    assert lags.lines[0][1] == "11 s"
    *_, lags = charts([replace(rounds[0], waiting_since=3_000 - 465_000)], now=14_500)
    label = lags.lines[0][1]
    assert label == "7 min 45 s"
    assert lags.left - 6 >= 6.5 * len(label), "the label, whose end is at left - 6, is not cut off"  # E34
    assert lags.bars[0].x == lags.left


def test_links_lead_to_the_run_and_the_log_of_a_round():  # E31
    origin = RoundOrigin("tier", "manual__2026-11-28T03:00:00+00:00", "shop.submit", 0, 2)
    run = "dags/tier/runs/manual__2026-11-28T03%3A00%3A00%2B00%3A00"
    assert dag_run_href(origin) == run
    assert task_log_href(origin) == f"{run}/tasks/shop.submit/mapped/0?try_number=2"
    assert task_log_href(replace(origin, map_index=None, try_number=0)) == f"{run}/tasks/shop.submit"
    odd = replace(origin, dag_id='"><script>', run_id="../..?a=b#c")
    assert dag_run_href(odd) == "dags/%22%3E%3Cscript%3E/runs/..%2F..%3Fa%3Db%23c"
    for unknown in (replace(origin, dag_id=""), replace(origin, run_id=""), RoundOrigin()):
        assert dag_run_href(unknown) is task_log_href(unknown) is None


def test_no_link_leads_to_a_script():  # E31
    parts = _environment().get_template("parts.html").module
    for address in ("javascript:alert(1)", "data:text/html,x", "//elsewhere", ""):
        assert parts.spark_link(RoundOrigin(spark_ui_url=address), "app-1").strip() == "app-1"
    assert 'href="https://spark/"' in parts.spark_link(RoundOrigin(spark_ui_url="https://spark/"), "app-1")


def page_of_table(each: TieringStatus, rounds: list[TieringRound]) -> str:
    values = {
        "query": "",
        "section": "table",
        "connections": (),
        "note": None,
        "token": None,
        "conn": "c",
        "now": 0,
        "each": each,
        "newest": rounds[0],
        "parts": folded(rounds),
        "charts": charts(rounds, now=0),
        "lake": {},
        "options": {},
        "chart_width": WIDTH,
        "chart_height": HEIGHT,
        "took": took,
    }
    return _environment().get_template("table.html").render(values)


def test_a_failing_table_that_waits_for_a_run_can_be_tiered_at_once():  # E34
    pending = TieringStatus(1, TablePath("a", "b"), TieringState.PENDING, 0, 3, None, "full", 0, 2)
    failed = a_round(2, TieringState.FAILED, 0, 1_000, None)
    for origin, run in ((None, ""), (RoundOrigin("tier", "manual__1"), ", and start a run: tier")):
        shown = re.sub(r"<[^>]*>", "", page_of_table(pending, [replace(failed, origin=origin)]))
        said = " ".join(shown.partition("What you can do")[2].split())
        assert said.startswith(f"Remove the cause{run}. The command fluss-tiering tier a.b tries it at once.")


def test_a_long_name_may_break_behind_its_parts_and_stays_text():  # E34
    assert text.breakable("shop.a__b<c>") == "shop.<wbr>a__<wbr>b&lt;c&gt;"


@pytest.mark.parametrize("number", [1, 2, 25, 50])
def test_the_bars_stand_beside_each_other_within_the_chart(number):
    for chart in charts([a_round(each, TieringState.TIERED, 0, each, 0) for each in range(number)], now=0):
        bars = chart.bars
        assert all(bar.width > 4 and bar.height >= 2 for bar in bars)
        assert all(left.x + left.width < right.x for left, right in itertools.pairwise(bars))
        assert bars[0].x > 0
        assert bars[-1].x + bars[-1].width <= WIDTH
        assert all(bar.y + bar.height < HEIGHT for bar in bars)


async def test_servers_that_hang_leave_threads_for_the_others():
    hanging, let_go = threading.Semaphore(0), threading.Event()

    def hang() -> bool:
        hanging.release()
        return let_go.wait(60)

    waiting = [asyncio.ensure_future(in_thread(f"dead{each % 2}", hang)) for each in range(40)]
    try:
        assert await asyncio.wait_for(in_thread("healthy", lambda: 7), 30) == 7
        for _ in range(2 * THREADS_OF_A_CONNECTION):
            assert await asyncio.to_thread(hanging.acquire, timeout=30)
        # All others wait for their turn, so that none of them takes a thread.
        assert not hanging.acquire(blocking=False)
        assert await asyncio.wait_for(in_thread("healthy", lambda: 8), 30) == 8
    finally:
        let_go.set()
    assert all(await asyncio.gather(*waiting))
