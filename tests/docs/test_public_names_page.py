"""docs/reference/public-names.md: its examples run, one after the other, against a real server."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from engine_support import ServerThread

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "public-names.md"
ADDRESS = "127.0.0.1:9133"


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The address of a server with the embedded storage, which Airflow's connection `fluss_default` names too."""
    # Airflow reads its home when it is first imported.
    os.environ.setdefault("AIRFLOW_HOME", str(tmp_path / "airflow"))
    with ServerThread(tmp_path / "data") as running:
        monkeypatch.setenv("AIRFLOW_CONN_FLUSS_DEFAULT", f"fluss://{running.target}")
        yield running.target


def examples() -> list[tuple[int, str]]:
    """The line on which each example begins, and its code."""
    text = PAGE.read_text()
    blocks = re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [(text.count("\n", 0, block.start(1)), block[1]) for block in blocks]


@pytest.mark.airflow
@pytest.mark.system
def test_every_example_runs(target: str) -> None:
    names: dict[str, object] = {"__name__": "examples"}
    found = examples()
    assert len(found) > 10
    for line, code in found:
        # Blank lines before the code let a traceback name the line of the page.
        source = "\n" * line + code.replace(ADDRESS, target)
        # A reader's script does not inherit this module's future statement, by which no annotation is evaluated.
        exec(compile(source, str(PAGE), "exec", dont_inherit=True), names)
