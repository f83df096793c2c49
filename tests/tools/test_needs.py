"""Tests are marked by what their fixtures need, and fail when they need more than their markers say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
CONFTEST = """
from needs import NeedsPlugin

def pytest_configure(config):
    config.pluginmanager.register(NeedsPlugin())
"""
FIXTURES = """
import subprocess, sys
import pytest
from needs import needs

def start():
    subprocess.run([sys.executable, "-c", ""], check=True)

@pytest.fixture(scope="session")
@needs("cluster")
def cluster():
    start()

@pytest.fixture
def table(cluster):
    return "a table"

@pytest.fixture(params=["file", "cluster"])
def place(request):
    return request.getfixturevalue("cluster") if request.param == "cluster" else None

@pytest.fixture
def own():
    start()
"""


@pytest.fixture
def run(tmp_path):
    """Run a test file with these fixtures; the counts of outcomes, and all that pytest prints."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = {TESTS}\nmarkers =\n  cluster: x\n  system: x\n")

    def call(tests: str, *arguments: str) -> tuple[str, str]:
        (tmp_path / "test_it.py").write_text(FIXTURES + tests)
        command = [sys.executable, "-m", "pytest", "-q", "--strict-markers", "-p", "no:cacheprovider", *arguments]
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
        return ended.stdout.splitlines()[-1].partition(" in ")[0], ended.stdout

    return call


@pytest.mark.system
def test_a_test_is_marked_with_what_its_fixtures_need(run):
    tests = "def test_one(table): pass\ndef test_other(): pass\n"
    assert run(tests, "-m", "cluster")[0] == "1 passed, 1 deselected"
    assert run(tests, "-m", "not cluster")[0] == "1 passed, 1 deselected"


@pytest.mark.system
@pytest.mark.parametrize(
    ("tests", "said"),
    [
        ("def test_it(): start()", "is not marked with system"),
        ("def test_it(own): pass", "a fixture of this test starts"),
        ("def test_it(place): pass", "uses a fixture that needs cluster"),
        ("def test_it(): subprocess.run(['java'], executable=sys.executable, input=b'')", "is not marked with system"),
    ],
)
def test_a_test_that_needs_more_than_its_markers_say_fails(run, tests, said):
    counts, output = run(tests)
    assert counts.startswith("1 failed") or "1 error" in counts, output
    assert said in output


@pytest.mark.system
def test_a_test_that_says_what_it_needs_passes(run):
    assert run("@pytest.mark.system\ndef test_it(): start()\n")[0] == "1 passed"
    tests = "@pytest.mark.cluster\ndef test_one(place): pass\n"
    assert run(tests)[0] == "2 passed"
