"""The code and the commands that pages show can be run as they are."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
import yaml
from code_blocks import ROOT, CodeBlock, code_blocks

from cases import cases
from engine_support import ServerThread
from fluss_tiering.cli.main import app

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


ALL_PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMAND = typer.main.get_command(app)


def commands_of(text: str) -> Iterator[str]:
    """Yield what follows `fluss-tiering` in the code of a page, up to the end of that command."""
    joined = re.sub(r"\\\n\s*", "", text)
    in_blocks = re.findall(r"(?m)^(?: {4,}|\t)?(?:\S+=\S+ |\$ )?fluss-tiering (.+)$", joined)
    inline = re.findall(r"`fluss-tiering ([^`]+)`", joined)
    substituted = re.findall(r"\$\(fluss-tiering ([^)]+)\)", joined)
    for found in (*in_blocks, *inline, *substituted):
        yield re.split(r"\s[|>#;&]|\)", found)[0].strip()


def unknown_in(arguments: str) -> list[str]:
    """Return the words of a command line that name no command and no option."""
    command = COMMAND
    wrong: list[str] = []
    words = iter(arguments.split())
    for word in words:
        if word.startswith("-"):
            option = word.split("=")[0]
            known = {name: each for each in command.params for name in (*each.opts, *each.secondary_opts)}
            if option in known:
                if not (known[option].is_flag or known[option].count or "=" in word):
                    next(words, None)
            elif option not in ("--help", "-h"):
                wrong.append(word)
        elif subcommands := getattr(command, "commands", None):
            if word == "COMMAND":
                return wrong
            if word not in subcommands:
                return [*wrong, word]
            command = subcommands[word]
    return wrong


@cases("page", ALL_PAGES)
def test_commands_and_options_that_a_page_names_exist(page: Path) -> None:  # D29
    assert {f"{line}: {wrong}" for line in commands_of(page.read_text()) if (wrong := unknown_in(line))} == set()


def test_the_pages_name_many_commands() -> None:
    assert len({line for page in ALL_PAGES for line in commands_of(page.read_text())}) > 100


def test_the_first_pages_use_one_environment_one_data_folder_and_one_table() -> None:  # E37
    for page in ("README.md", "docs/tutorial/first-table.md", "docs/airflow/quick-start.md"):
        text = (ROOT / page).read_text()
        assert set(re.findall(r"[~./]\S*venv\b", text)) == {"~/fluss-venv"}, page
        assert set(re.findall(r"--data-dir (\S+)", text)) == {"~/fluss-tiering-data"}, page
        assert set(re.findall(r"\bshop\.\w+", text)) == {"shop.orders"}, page


@cases("line", ["serve --bogus", "tires", "tables list --bootstrap.servers x", "--nope status"])
def test_the_check_can_fail(line: str) -> None:
    assert unknown_in(line)
