"""A short run of plans with fixed seeds: each is made up, run for real, and judged by readers that are not ours."""

from __future__ import annotations

import pytest

from torture.checks import Tally
from torture.makers.histories import make_plan
from torture.run import PlanRun
from torture.world import World

pytestmark = [pytest.mark.system, pytest.mark.slow]


def test_what_fixed_seeds_make_up_is_read_back_by_every_judge(tmp_path):
    tally = Tally()
    with World(tmp_path) as world:
        for seed in (2,):
            PlanRun(world, make_plan(seed, "embedded"), tally).run()
    for judge in ("duckdb", "clickhouse"):
        assert tally.comparisons[f"{judge} questions"], tally
