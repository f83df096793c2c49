"""Plans with fixed seeds: each is made up, run for real, and judged by readers that are not ours."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from torture.defects import DEFECTS
from torture.judging.checks import Tally
from torture.makers.histories import make_case, make_plan
from torture.run import run_plan
from torture.world import World

_ROOT = Path(__file__).resolve().parents[2]
_CASES = (
    ("long texts", 1),
    ("late", 1),
    ("late", 4),
    ("cut texts", 1),
    ("siblings", 1),
    ("published", 1),
    ("altered columns", 4),
)
_SEEDS = (5, 203)


def command(*arguments: str, minutes: float) -> subprocess.CompletedProcess[str]:
    return python("-m", "torture", "--minutes", str(minutes), *arguments)


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    paths = (_ROOT / each for each in ("verification", "tests", "tools"))
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))},
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.system
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.airflow
def test_what_fixed_seeds_make_up_is_read_back_by_every_judge(tmp_path):
    # D40, D41, D42, D44, D60
    tally = Tally()
    plans = [make_case(name, seed, "embedded") for name, seed in _CASES]
    with World(tmp_path) as world:
        for plan in [*plans, *(make_plan(seed, "embedded") for seed in _SEEDS)]:
            run_plan(world, plan, tally, most=40)
    for judge in ("duckdb", "clickhouse", "pyiceberg", "spark"):
        assert tally.comparisons[f"{judge} questions"], tally
        assert tally.comparisons[f"{judge} rows"], tally
    assert tally.counts["writes broken off: kill writer"], tally
    assert tally.counts["DELETE, merge-on-read"], tally
    assert tally.counts["changes of columns"], tally


@pytest.mark.system
@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("options", "minutes"),
    [((), 16), (("--storage", "cluster"), 6), (("--with", "two servers"), 4), (("--with", "s3"), 4)],
)
def test_half_an_hour_finds_nothing(options, minutes):
    done = command(*options, minutes=minutes)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


@pytest.mark.system
def test_each_defect_can_be_put_back_into_the_code_of_today():
    """The long test below shows that it is found, and runs too seldom to notice that code has moved."""
    done = python("-c", "from torture.defects import DEFECTS\nfor each in DEFECTS.values(): each.switch_on()")
    assert done.returncode == 0, done.stderr


@pytest.mark.system
@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_that_is_put_back_is_found(defect, record_property):
    done = command("--defect", defect, "--shrink-minutes", "0", minutes=20)
    assert done.returncode == 1, done.stdout[-3000:] + done.stderr[-2000:]
    found = re.search(r"x (.+): first by seed \d+ after ([\d.]+) minutes", done.stdout)
    assert found, done.stdout[-3000:]
    record_property("minutes until it was found", found[2])
    assert re.search(DEFECTS[defect].shown_by, found[1]), found[1]
