"""`make airflow-versions`: the provider on each version of Airflow and Python, and the page that says what passed.

Each combination has an environment of its own in .cache. It holds what the index had a few days after the release of
that version of Airflow, since later releases of what Airflow is built on may not fit it. In each environment all tests
of the provider run, and the main example DAG runs under a real scheduler, with Spark.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from markdown_text import table
from matrix.combinations import ROOT, pythons

PAGE: Final = ROOT / "docs" / "reference" / "airflow-versions.md"
FOLDER: Final = ROOT / ".cache" / "airflow"
VERSIONS: Final = {"3.1.8": "2026-03-14", "3.2.2": "2026-06-02", "3.3.2": None}
"""The last patch of each minor version -> the day whose index fits it; None for what constraints.txt pins."""
_NEWEST: Final = "3.3.2"
_UNIT_TESTS: Final = "tests/provider"
_DAG_TEST: Final = (
    "tests/system/test_airflow_tiering.py"
    "::test_all_pending_tables_are_tiered_by_one_application_while_the_sensor_is_deferred"
)
_TEST_PACKAGES: Final = (
    "aiosmtpd",
    "psutil",
    "pytest",
    "pytest-asyncio",
    "pytest-timeout",
    "pytest-xdist",
    "websockets",
)
_OURS: Final = re.compile(
    r"(apache-airflow(-providers-.*)?|cryptography|grpcio.*|protobuf|googleapis-.*|opentelemetry-.*|rich|typer)=="
)
"""What the provider itself asks for in newer versions than a day's index had."""
_TIMEOUT_S: Final = 3600
_INTRODUCTION: Final = """# Versions of Airflow

This page is made by `make airflow-versions`, which runs the provider's tests on each version, and the main example DAG
under a real scheduler with Spark. A number is the number of tests that passed. A
dash stands for a version that was not tried again after the last change.

"""
_CLOSING: Final = """
What the older versions lack:

- **3.1 and 3.2** do not call `on_kill` of a trigger. If somebody marks a deferred sensor, its rounds are not cancelled
  at once. The teardown task and the callbacks cancel them when the run ends.
- **3.1 and 3.2** show only the first page of *Lake tiering* within Airflow when an address names another one. The links
  of tasks therefore open the page alone, without Airflow's navigation.
- **3.1 and 3.2** do not lead back to the page *Lake tiering* after the login with Airflow's simple auth manager.
- **3.1 and 3.2** keep the text of a template that renders to something empty. For an argument such as `tables`, that
  text is then taken for the name of a table.
- **3.1 and 3.2** do not show the example DAGs of providers among their own.
- **3.1** shows the form of a `fluss` connection with the fields of any connection, and its extra as JSON, since the
  forms in the metadata of providers come with 3.2.
- **3.1** refuses an extra that is not a JSON object, and says that such a connection is not defined.

The provider needs Airflow 3.1 or later. Each minor version is tried with its last patch.
"""


@dataclass(frozen=True, slots=True)
class Combination:
    """A version of Airflow on a version of Python.

    Attributes:
        airflow: The version of Airflow, as "3.3.2".
        python: The version of Python, as "3.11".
        interpreter: The Python to make the environment with.
    """

    airflow: str
    python: str
    interpreter: Path


@dataclass(frozen=True, slots=True)
class Tally:
    """The result of some tests.

    Attributes:
        passed: How many passed.
        failed: The names of those that failed.
    """

    passed: int
    failed: tuple[str, ...]

    def __str__(self) -> str:
        """Return the result for a cell of the page."""
        if self.failed:
            return f"**no**: {', '.join(self.failed)}"
        return str(self.passed) if self.passed else "**no**: no test ran"


def combinations() -> Iterator[Combination]:
    """Yield each Airflow on the oldest Python, and the newest Airflow on every Python of this machine."""
    found = pythons()
    for airflow in VERSIONS:
        for python, interpreter in list(found.items())[: None if airflow == _NEWEST else 1]:
            yield Combination(airflow, python, interpreter)


def environment(combination: Combination) -> Path:
    """Make the environment of a combination, unless it is there, and return its Python."""
    folder = FOLDER / f"airflow-{combination.airflow}-python-{combination.python}"
    python = folder / "bin" / "python"
    if (folder / ".installed").exists():
        return python
    _uv("venv", "--clear", "--python", str(combination.interpreter), str(folder))
    _uv(
        *("pip", "install", "--python", str(python), "--constraints", str(_constraints(combination))),
        *(f"apache-airflow=={combination.airflow}", "--editable", f"{ROOT}[openlineage]"),
        *("--editable", f"{ROOT / 'engine'}[server,spark,postgres]", *_TEST_PACKAGES),
    )
    (folder / ".installed").touch()
    return python


def _constraints(combination: Combination) -> Path:
    day = VERSIONS[combination.airflow]
    if day is None:
        return ROOT / "constraints.txt"
    resolved = FOLDER / f"{combination.airflow}-resolved.txt"
    wanted = FOLDER / f"{combination.airflow}.in"
    wanted.write_text(f"apache-airflow=={combination.airflow}\n")
    _uv(
        *("pip", "compile", "--no-header", "--no-annotate", "--python-version", combination.python),
        *("--exclude-newer", day, str(wanted), "--output-file", str(resolved)),
    )
    constraints = FOLDER / f"{combination.airflow}-constraints.txt"
    constraints.write_text("".join(f"{pin}\n" for pin in resolved.read_text().splitlines() if not _OURS.match(pin)))
    return constraints


def _uv(*arguments: str) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    # The catalog's jar is there already.
    variables = {**os.environ, "HATCH_BUILD_NO_HOOKS": "true"}
    done = subprocess.run(
        [str(Path(sys.executable).with_name("uv")), "--quiet", *arguments],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"error: {' '.join(arguments[:2])} failed:\n{done.stderr[-2000:]}")


def run(python: Path, tests: str) -> Tally:
    """Run tests in an environment. Their results are kept there, so that several versions can be tried at once."""
    environment_folder = python.parents[1]
    results = environment_folder / "results.xml"
    results.unlink(missing_ok=True)
    command = [str(python), "-m", "pytest", "-q", "-m", "not long", tests, f"--junitxml={results}"]
    variables = {**os.environ, "PATH": f"{python.parent}:{os.environ['PATH']}", "PYSPARK_PYTHON": str(python)}
    log = environment_folder / "tests.log"
    with log.open("w") as output:
        subprocess.run(command, cwd=ROOT, env=variables, stdout=output, stderr=output, timeout=_TIMEOUT_S, check=False)
    if not results.exists():
        sys.exit(f"error: the tests did not run; the end of {log}:\n{log.read_text()[-2000:]}")
    cases = list(ET.parse(results).getroot().iter("testcase"))
    failed = [each for each in cases if each.find("failure") is not None or each.find("error") is not None]
    skipped = [each for each in cases if each.find("skipped") is not None]
    return Tally(len(cases) - len(failed) - len(skipped), tuple(each.get("name", "?") for each in failed))


def main() -> int:
    """Run all combinations, write the page, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--airflow", help="Run only this version of Airflow. The results of the others are kept.")
    only = parser.parse_args().airflow
    rows, failed = [], False
    for each in combinations():
        kept = FOLDER / f"airflow-{each.airflow}-python-{each.python}.json"
        if only is None or each.airflow.startswith(only):
            python = environment(each)
            unit, dag = run(python, _UNIT_TESTS), run(python, _DAG_TEST)
            kept.write_text(json.dumps([str(unit), str(dag)]))
            failed = failed or bool(unit.failed or dag.failed) or not (unit.passed and dag.passed)
            sys.stdout.write(f"Airflow {each.airflow}, Python {each.python}: {unit}; DAG run: {dag}\n")
            sys.stdout.flush()
        rows.append((each.airflow, each.python, *(json.loads(kept.read_text()) if kept.exists() else ("–", "–"))))
    PAGE.write_text(_INTRODUCTION + table(("Airflow", "Python", "Tests of the provider", "DAG runs"), rows) + _CLOSING)
    sys.stdout.write(f"{PAGE.relative_to(ROOT)} was written.\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
