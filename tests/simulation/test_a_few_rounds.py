"""A few rounds of the simulation for each seed: short enough for every run of the tests, and for each mutant."""

from __future__ import annotations

import pytest

from simulation.world import World


@pytest.mark.parametrize("seed", range(4, 7))
@pytest.mark.sampled(2)
def test_a_few_rounds_lose_and_double_nothing(seed: int) -> None:  # L12, L13, L18, S5, S21, S22, S25
    report = World(seed).run(40)
    assert report.violation is None, (report.violation, *report.trace[-20:])
    counted = report.counters
    assert counted["lost rows"] == counted["doubled rows"] == 0
    assert min(counted["rounds tiered"], counted["commits"], counted["compactions"], counted["drivers killed"]) > 0
    assert counted["rounds tiered"] > counted["rounds failed"]
