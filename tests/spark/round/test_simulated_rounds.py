"""A few rounds of the simulation: short enough for every run of the tests, and for each mutant."""

from __future__ import annotations

import pytest


@pytest.mark.airflow
def test_a_few_rounds_lose_and_double_nothing() -> None:  # L12, L13, L18, S5, S21, S22, S25
    from simulation.world import World  # noqa: PLC0415 - it imports Airflow

    report = World(4).run(40)
    assert report.violation is None, (report.violation, *report.trace[-20:])
    counted = report.counters
    assert counted["lost rows"] == counted["doubled rows"] == 0
    assert min(counted["rounds tiered"], counted["commits"], counted["compactions"], counted["drivers killed"]) > 0
    assert counted["rounds tiered"] > counted["rounds failed"]
