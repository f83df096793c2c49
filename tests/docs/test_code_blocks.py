"""The code that pages show: each block can be read by what it is for, and Airflow loads the examples for it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml
from code_blocks import ROOT, CodeBlock, code_blocks

from cases import cases

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
AIRFLOW_PAGES = [
    *sorted((ROOT / "docs" / "airflow").glob("*.md")),
    ROOT / "docs" / "how-to" / "alert.md",
    ROOT / "docs" / "reference" / "airflow.md",
]
QUICK_START = ROOT / "docs" / "airflow" / "quick-start.md"


def blocks(pages: list[Path], *languages: str) -> list[CodeBlock]:
    return [block for page in pages for block in code_blocks(page, *languages)]


DATA = blocks(PAGES, "json", "yaml", "yml")
PYTHON = blocks(PAGES, "python")
SHELL = blocks(PAGES, "bash", "sh")
EXAMPLES = blocks(AIRFLOW_PAGES, "python")


def test_there_are_blocks_to_test() -> None:
    assert min(len(PYTHON), len(EXAMPLES), len(SHELL)) >= 10
    assert DATA


@cases("block", PYTHON)
def test_python_compiles(block: CodeBlock) -> None:
    # Blank lines before the code let an error name the line of the page.
    compile("\n" * block.line + block.code, block.page, "exec", dont_inherit=True)


@pytest.mark.parametrize("block", DATA, ids=str)
def test_data_can_be_read(block: CodeBlock) -> None:
    assert json.loads(block.code) if block.language == "json" else yaml.safe_load(block.code)


@pytest.mark.system
@cases("block", SHELL)
def test_the_shell_understands_commands(block: CodeBlock) -> None:
    checked = subprocess.run(["bash", "-n"], input=block.code, check=False, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.airflow
@pytest.mark.parametrize("block", EXAMPLES, ids=str)
def test_airflow_loads_each_example_by_itself(block: CodeBlock, tmp_path: Path) -> None:
    # Airflow reads its home when it is first imported.
    os.environ.setdefault("AIRFLOW_HOME", str(tmp_path / "airflow"))
    from airflow.dag_processing.dagbag import DagBag  # noqa: PLC0415
    from airflow.serialization.serialized_objects import DagSerialization  # noqa: PLC0415

    names: dict[str, object] = {"__name__": "example"}
    exec(compile("\n" * block.line + block.code, block.page, "exec", dont_inherit=True), names)
    folder = tmp_path / "dags"
    folder.mkdir()
    (folder / "example.py").write_text(block.code)
    bag = DagBag(dag_folder=str(folder), bundle_name="docs", collect_dags=True)
    assert not bag.import_errors
    assert bool(bag.dags) == ("@dag" in block.code or "with DAG" in block.code)
    for dag in bag.dags.values():
        DagSerialization.to_dict(dag)


def test_the_quick_start_is_one_file_of_ten_lines() -> None:
    (block,) = code_blocks(QUICK_START, "python")
    assert len([line for line in block.code.splitlines() if line]) <= 10
