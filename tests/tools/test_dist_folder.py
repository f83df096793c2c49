"""The folder dist/, into which several commands write."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.system
@pytest.mark.skipif(shutil.which("make") is None, reason="this machine has no make")
def test_building_the_packages_keeps_the_list_of_what_is_inside(tmp_path):
    shown = subprocess.run(["make", "--dry-run", "dist"], cwd=ROOT, capture_output=True, text=True, check=True)
    (removal,) = [line for line in shown.stdout.splitlines() if line.startswith("rm ")]
    kept = "fluss-tiering-0.1.0.cdx.json"
    (tmp_path / "dist").mkdir()
    for name in (kept, "fluss_tiering-0.1.0-py3-none-any.whl", "fluss_tiering-0.1.0.tar.gz"):
        (tmp_path / "dist" / name).touch()
    subprocess.run(["sh", "-c", removal], cwd=tmp_path, check=True)
    assert [each.name for each in (tmp_path / "dist").iterdir()] == [kept]
