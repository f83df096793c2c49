"""The workflows run commands that exist, and leave out no folder of tests."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = ROOT / ".github" / "workflows"


def test_commands_of_workflows_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for file in WORKFLOWS.iterdir():
        used = set(re.findall(r"(?:run:|-) make ([a-z-]+)", file.read_text()))
        assert used, file.name
        assert used <= targets, file.name


def test_jobs_run_all_tests():
    matrix = yaml.safe_load((WORKFLOWS / "tests.yml").read_text())["jobs"]["programs"]["strategy"]["matrix"]
    folders = [each for job in matrix["include"] for each in job["folders"].partition(" --ignore")[0].split()]
    tests = {f"tests/{path.relative_to(ROOT / 'tests').parts[0]}" for path in (ROOT / "tests").rglob("test_*.py")}
    assert {"/".join(each.split("/")[:2]) for each in folders} == tests
