"""`make test-matrix`: a real round on each combination, and the page about compatibility."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from markdown_text import table
from matrix.combinations import FOLDER, ROOT, Combination, combinations, environment, missing

PAGE: Final = ROOT / "docs" / "reference" / "compatibility.md"
_STEPS: Final = ("rounds", "verify", "compact", "expire", "clean", 'format("fluss")', "catalog")
_EXPECTED: Final = {
    ("3.5", 'format("fluss")'): "Spark 3.5 has no Python data sources",
    ("3.5", "catalog"): "needs Spark 4.1",
    ("4.0", "catalog"): "needs Spark 4.1",
}
"""What a version of Spark cannot do."""
_CATALOG_JAR: Final = ROOT / "engine" / "fluss_tiering" / "spark" / "jars" / "fluss-tiering-spark.jar"
_TIMEOUT_S: Final = 900
_TABLE: Final = "| Spark | Iceberg | Java |"
"""How the table of the page begins. What is before it stays as it is."""


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a combination."""

    combination: Combination
    versions: dict[str, str]
    outcomes: dict[str, str | None]

    def unexpected(self) -> list[str]:
        """Return the steps that failed although they should work."""
        spark = self.combination.spark
        return [
            f"Spark {spark}, Iceberg {self.combination.iceberg}, Java {self.combination.java}, {step}: {reason}"
            for step in _STEPS
            if (reason := self.outcomes.get(step, "it was not reached")) is not None
            and (spark, step) not in _EXPECTED
            and self.combination.java != "25"
        ]


def jars(combination: Combination, python: Path) -> list[Path]:
    """Return the jars of a combination. Missing ones are fetched by its own Spark."""
    folder = FOLDER / "jars"
    paths = [folder / f"{each.split(':')[1]}-{each.split(':')[2]}.jar" for each in combination.packages]
    if not all(path.exists() for path in paths):
        program = (
            "import sys; sys.path.insert(0, sys.argv[1]); import fetch_spark_jars as f; from pathlib import Path\n"
            "f.resolve(Path(sys.argv[2]), sys.argv[3:])"
        )
        arguments = [str(ROOT / "tools"), str(folder), *combination.packages]
        subprocess.run([python, "-c", program, *arguments], check=True, capture_output=True)
    return [*paths, *([_CATALOG_JAR] if combination.spark == "4.1" else [])]


def run(combination: Combination, *, keep: bool) -> Result:
    """Run the steps of a combination in its environment.

    Args:
        combination: The combination.
        keep: Whether to return what came of the combination before, if it was run.
    """
    kept = FOLDER / "results" / f"{combination.name}.json"
    if keep and kept.exists():
        return Result(combination, **json.loads(kept.read_text()))
    python = environment(combination)
    command = [python, Path(__file__).with_name("one_round.py"), *jars(combination, python)]
    variables = {**os.environ, "JAVA_HOME": str(combination.java_home), "PYSPARK_PYTHON": str(python)}
    variables["PATH"] = f"{python.parent}:{variables['PATH']}"
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    try:
        told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        told = {"versions": {}, "outcomes": {"rounds": (done.stderr.strip().splitlines() or ["no output"])[-1]}}
    kept.parent.mkdir(exist_ok=True)
    kept.write_text(json.dumps(told))
    return Result(combination, **told)


def page(results: list[Result]) -> str:
    """Return the page about compatibility."""
    rows = (
        (
            result.versions.get("pyspark", result.combination.spark),
            result.combination.iceberg,
            result.versions.get("java", result.combination.java),
            result.versions.get("python", result.combination.python),
            *(_cell(result, step) for step in _STEPS),
        )
        for result in results
    )
    notes = sorted({f"- Spark {spark}, {step}: {reason}." for (spark, step), reason in _EXPECTED.items()})
    lacks = missing()
    not_tried = (
        f"\nNot tried, because the machine that made this page lacks them: {', '.join(lacks)}.\n" if lacks else ""
    )
    failed = "".join(f"- {each}\n" for result in results for each in _reasons(result))
    return (
        f"{PAGE.read_text().partition(_TABLE)[0].rstrip()}\n"
        + table(("Spark", "Iceberg", "Java", "Python", *_STEPS), rows)
        + "\nA dash stands for what the version of Spark does not have:\n\n"
        + "\n".join(notes)
        + "\n"
        + (f"\nWhat failed:\n\n{failed}" if failed else "")
        + not_tried
    )


def _cell(result: Result, step: str) -> str:
    if (result.combination.spark, step) in _EXPECTED:
        return "–"
    return "yes" if step in result.outcomes and result.outcomes[step] is None else "**no**"


def _reasons(result: Result) -> list[str]:
    spark = result.combination.spark
    return [
        f"Spark {spark} on Java {result.combination.java}, {step}: {reason}"
        for step, reason in result.outcomes.items()
        if reason is not None and (spark, step) not in _EXPECTED
    ]


def main() -> int:
    """Run all combinations, write the page, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spark", help="Run only this version of Spark, and leave the page as it is.")
    parser.add_argument("--keep", action="store_true", help="Keep the results of combinations that were run before.")
    arguments = parser.parse_args()
    only = arguments.spark
    results = []
    for combination in combinations():
        if only not in (None, combination.spark):
            continue
        results.append(run(combination, keep=arguments.keep))
        sys.stdout.write(
            f"Spark {combination.spark}, Iceberg {combination.iceberg}, Java {combination.java}, Python "
            f"{combination.python}: {', '.join(f'{step} {_cell(results[-1], step)}' for step in _STEPS)}\n"
        )
        sys.stdout.flush()
    if only is None:
        PAGE.write_text(page(results))
        sys.stdout.write(f"{PAGE.relative_to(ROOT)} was written.\n")
    unexpected = [each for result in results for each in result.unexpected()]
    sys.stdout.writelines(f"failed: {each}\n" for each in unexpected)
    return 1 if unexpected else 0


if __name__ == "__main__":
    sys.exit(main())
