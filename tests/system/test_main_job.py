"""`make run`, whole: the README's promise."""

from __future__ import annotations

import subprocess
import sys

import pytest

from examples.flights.environment import ROOT


@pytest.mark.long
@pytest.mark.system
@pytest.mark.timeout(1200)
def test_every_row_of_the_flights_data_is_in_the_lake_after_two_rounds(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "examples.flights", "run", "--folder", str(tmp_path / "run")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1100,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert "Every row is in the lake, once." in done.stdout
    assert done.stdout.count(" equal ") == 10
