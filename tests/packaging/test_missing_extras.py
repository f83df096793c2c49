"""Commands whose optional dependencies are not installed (D22). An import hook stands for a smaller installation."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import fluss_tiering
from fluss_tiering.cli.common.extras import MODULES
from needs import needs

# Typer itself needs pydantic, so that it is never missing.
ALL = frozenset().union(*MODULES.values()) - {"pydantic"}

_BLOCKER = """
import os, sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name in os.environ["BLOCKED_MODULES"].split():
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())
"""


@pytest.fixture
@needs("system")
def run(tmp_path):
    """Run the command as if modules were not installed, in an empty folder, with no server to be reached."""
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    (hooks / "sitecustomize.py").write_text(_BLOCKER)
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")

    def call(*arguments: str, without: Iterable[str], **environment: str) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
        return subprocess.run(
            [sys.executable, "-c", "from fluss_tiering.cli.main import main; main()", *arguments],
            cwd=tmp_path,
            env={
                **kept,
                "PYTHONPATH": str(hooks),
                "BLOCKED_MODULES": " ".join(without),
                "FLUSS_TIERING_SERVER": "127.0.0.1:1",
                **environment,
            },
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return call


SPARK = ("pyspark", "py4j")
COMMANDS = [
    (["tier", "a.b"], "spark", SPARK),
    (["tier", "--drain"], "spark", SPARK),
    (["verify", "a.b"], "spark", SPARK),
    (["compact", "a.b"], "spark", SPARK),
    (["clean"], "spark", SPARK),
    (["expire", "a.b"], "spark", SPARK),
    (["class-archive", "spark.jsa"], "spark", SPARK),
    (["spark-conf"], "spark", ("pyarrow",)),
    (["serve", "--port", "0"], "server", ("grpc_health", "structlog")),
    (["health"], "server", ("grpc_health",)),
    (["put", "a.b", "rows.csv"], "rows", ("pyarrow",)),
    (["scan", "a.b"], "rows", ("pyarrow",)),
    (["tables", "create", "a.b", "--like", "rows.csv"], "rows", ("pyarrow",)),
]


def check(answer: subprocess.CompletedProcess[str], command: str, extra: str) -> None:
    assert answer.returncode == 2, answer
    assert not answer.stdout
    (line,) = answer.stderr.splitlines()
    assert line.startswith(f"error: `fluss-tiering {command}` needs ")
    assert line.endswith(f"which is not installed: pip install 'fluss-tiering[{extra}]'")


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("arguments", "extra", "some"), COMMANDS, ids=[" ".join(each) for each, *_ in COMMANDS])
def test_a_command_says_what_to_install(run, arguments, extra, some):  # D22
    check(run(*arguments, without=ALL), arguments[0], extra)
    check(run(*arguments, without=some), arguments[0], extra)


@pytest.mark.parametrize("arguments", [["clean"], ["compact", "a.b"]], ids=lambda each: each[0])
def test_pyspark_without_its_jvm_side_is_not_enough(run, arguments):  # D22: pyspark-client alone, of Airflow's provider
    check(run(*arguments, without=["py4j"]), arguments[0], "spark")


def test_a_store_in_postgresql_says_what_to_install(run):  # D22
    answer = run("serve", "--store", "postgresql://u:p@127.0.0.1:1/d", "--port", "0", without=MODULES["postgres"])
    assert answer.returncode == 1
    (line,) = [line for line in answer.stderr.splitlines() if line.startswith("error:")]
    assert "fluss-tiering[server,postgres]" in line
    assert "Traceback" not in answer.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["status"], ["leases", "list"], ["tables", "list"]], ids=" ".join)
def test_other_commands_need_no_extra(run, server, arguments):  # D22
    answer = run(*arguments, without=ALL, FLUSS_TIERING_SERVER=server.target)
    assert answer.returncode == 0, answer


def test_spark_conf_trusts_another_python(run):
    answer = run("spark-conf", without=ALL, PYSPARK_PYTHON="/opt/python")
    assert answer.returncode == 0, answer
    assert "spark.pyspark.python=/opt/python" in answer.stdout


@pytest.mark.parametrize("module", ["fluss_tiering.cli.row_files.files", "pyarrow.csv"])
def test_a_missing_module_of_no_extra_is_not_masked(run, module):  # D22
    answer = run("put", "a.b", "rows.csv", without=[module])
    assert answer.returncode == 1
    assert f"ModuleNotFoundError: No module named '{module}'" in answer.stderr


def _distributions_by_extra() -> dict[str | None, set[str]]:
    """The distributions that the package requires, by extra; None for those that are always there."""
    found: dict[str | None, set[str]] = {}
    for text in requires("fluss-tiering") or []:
        requirement = Requirement(text)
        extras = [extra for extra in MODULES if requirement.marker and requirement.marker.evaluate({"extra": extra})]
        for extra in extras or [None]:
            found.setdefault(extra, set()).add(canonicalize_name(requirement.name))
    return found


@pytest.mark.slow
def test_every_distribution_of_an_extra_is_known_by_its_modules():
    modules: dict[str, set[str]] = {}
    for module, names in packages_distributions().items():
        for name in names:
            modules.setdefault(canonicalize_name(name), set()).add(module)
    for extra, names in _distributions_by_extra().items():
        for name in names - {"fluss-tiering"}:
            assert extra is None or modules[name] & MODULES[extra], f"{name} of {extra}: which module does it bring?"


@pytest.mark.slow
def test_every_import_belongs_to_an_extra_or_is_always_there():
    package = Path(fluss_tiering.__file__).parent
    required = _distributions_by_extra()[None]
    always = {
        module
        for module, names in packages_distributions().items()
        if any(canonicalize_name(name) in required for name in names)
    }
    known = {*sys.stdlib_module_names, "fluss_tiering", *always, *ALL, "pydantic"}
    unknown = {
        f"{path.relative_to(package)}: {name}"
        for path in package.rglob("*.py")
        for name in _imported(ast.parse(path.read_text()))
        if name not in known
    }
    assert not unknown


def _imported(tree: ast.AST) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


@pytest.mark.system
def test_a_driver_whose_python_lacks_modules_says_so_in_a_line():
    application = Path(fluss_tiering.__file__).parent / "spark" / "application.py"
    refused = subprocess.run([sys.executable, "-S", application], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert re.fullmatch(
        r"error: the driver's Python \S+ is 3[\d.]+ and lacks fluss_tiering, grpc, .*\n", refused.stderr
    )
