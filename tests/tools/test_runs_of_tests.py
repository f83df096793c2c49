"""How tests run: they are marked by what their fixtures need, try all cases, and are divided among processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cases import cases
from sharing import SPARK, Queue

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


def test_every_case_is_tried_with_the_fixtures_of_the_test(tmp_path):
    tried = []

    @cases("first", [1, 2])
    @cases(("second", "third"), [("a", "b"), ("c", "d")])
    def test_it(tmp_path, first, second, third):
        tried.append((tmp_path, first, second, third))

    test_it(tmp_path=tmp_path)
    assert [each[1:] for each in tried] == [(1, "a", "b"), (1, "c", "d"), (2, "a", "b"), (2, "c", "d")]
    assert {each[0] for each in tried} == {tmp_path}


def test_each_case_that_fails_is_told():
    @cases("number", range(4))
    def test_it(number):
        if number == 3:
            pytest.fail("three")
        assert number != 1

    with pytest.raises(BaseExceptionGroup, match="2 of 4 cases failed") as failed:
        test_it()
    assert [each.__notes__ for each in failed.value.exceptions] == [
        ["the case: {'number': 1}"],
        ["the case: {'number': 3}"],
    ]


SECONDS = {
    "a.py": 10,
    "b.py": 20,
    "c.py cluster-1.0": 5,
    f"d.py cluster-1.0 {SPARK}": 50,
    f"e.py {SPARK}": 40,
    f"f.py {SPARK}": 30,
}


def taken(queue: Queue, node: str, waiting: list[str]) -> str | None:
    unit = queue.choose(node, waiting)
    if unit is not None:
        waiting.remove(unit)
    return unit


def test_one_process_has_what_is_shared_and_goes_on_with_it():
    queue, waiting = Queue(SECONDS), list(SECONDS)
    assert taken(queue, "first", waiting) == f"d.py cluster-1.0 {SPARK}"
    assert taken(queue, "second", waiting) == "b.py"
    assert taken(queue, "first", waiting) == "c.py cluster-1.0"
    # It has a session already.
    assert taken(queue, "first", waiting) == f"e.py {SPARK}"


def test_a_session_is_started_if_all_else_is_done_and_it_is_worth_it():
    queue, waiting = Queue(SECONDS), list(SECONDS)
    taken(queue, "first", waiting)
    assert [taken(queue, "second", waiting) for _ in range(3)] == ["b.py", "a.py", f"e.py {SPARK}"]
    assert taken(queue, "third", waiting) is None
    queue.forget("first")
    assert taken(queue, "third", waiting) == "c.py cluster-1.0"
