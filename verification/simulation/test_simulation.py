"""Short runs of the simulation, that it can fail, and that a seed replays."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from simulation.defects import DEFECTS
from simulation.world import World

# With one seed; most planted defects are found within a hundred.
_MOST_ROUNDS = 250
_VERIFICATION = Path(__file__).resolve().parents[1]


def command(*arguments: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(_VERIFICATION), "PYTHONHASHSEED": hash_seed}
    return subprocess.run(
        [sys.executable, "-m", "simulation", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.long
def test_1000_rounds_with_every_fault_lose_and_double_nothing():
    # L3, L4, L5, L9, L10, L11, L13, L18, L22, S1, S3, S4, S5, S7, S9, S18, S19, S22, S24, S25, Fluss #2648, #2512
    totals: dict[str, int] = {}
    for seed in (1, 2, 3):
        report = World(seed).run(340)
        assert report.violation is None, (seed, report.violation, *report.trace[-20:])
        assert report.counters["lost rows"] == report.counters["doubled rows"] == 0
        totals = {name: totals.get(name, 0) + count for name, count in report.counters.items()}
    assert totals["rounds"] >= 1000
    # Nothing of what the run is for stayed away.
    never = [name for name, count in totals.items() if not count and name not in {"lost rows", "doubled rows"}]
    assert not never, totals


@pytest.mark.slow
def test_the_sql_store_behaves_as_its_model():
    # S24: the same requests and faults, and the same end, on the real store in memory.
    on_sql, on_model = World(5, sql=True).run(60), World(5).run(60)
    assert on_sql.violation is None, (on_sql.violation, *on_sql.trace[-20:])
    assert (on_sql.digest, on_sql.counters) == (on_model.digest, on_model.counters)


@pytest.mark.parametrize("name", DEFECTS)
@pytest.mark.sampled(10)
def test_a_planted_defect_is_found(name, record_property):
    defect = DEFECTS[name]
    rounds = 0
    for seed in range(1, 9):
        with defect.switch_on():
            report = World(seed).run(_MOST_ROUNDS)
        rounds += report.counters["rounds"]
        if report.violation is not None:
            break
    record_property("rounds until it was found", rounds)
    assert report.violation is not None, f"{name}: not found in {rounds} rounds"
    assert re.search(defect.shown_by, report.violation), report.violation


@pytest.mark.system
def test_a_seed_replays_the_same_run_in_another_process():
    first, second = (command("--seed", "7", "--rounds", "30", hash_seed=each) for each in ("1", "2"))
    assert first.returncode == second.returncode == 0, first.stdout + first.stderr
    assert first.stdout.splitlines()[-1] == second.stdout.splitlines()[-1]
    assert "0 lost and 0 doubled rows, seed 7, digest" in first.stdout


@pytest.mark.system
def test_a_failing_run_ends_with_status_1_its_seed_and_its_last_events():
    failed = command("--seed", "7", "--rounds", "100", "--defect", "epochs go back at a restart")
    assert failed.returncode == 1, failed.stdout + failed.stderr
    assert "VIOLATION: S3" in failed.stdout
    assert "--seed 7 replays this run" in failed.stdout
    assert re.search(r"^\d+ server: starts$", failed.stdout, re.MULTILINE)
    assert "Traceback" not in failed.stdout + failed.stderr


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_10000_rounds_in_one_run_lose_and_double_nothing():
    report = World(2026).run(10_000)
    assert report.violation is None, (report.violation, *report.trace[-20:])
    assert report.counters["rounds"] >= 10_000
    assert report.counters["lost rows"] == report.counters["doubled rows"] == 0
