"""Break one package of the engine in every way that mutmut knows, and say which breaks its tests do not notice.

    python tools/mutate.py server/core/leases

A *mutant* is the package with one small break, such as `<=` for `<`. It is killed if one of the tests that run the
broken function fails, and it survives otherwise. Everything happens in a copy of the repository under
`.cache/mutation`. A second run goes on where the first one ended: mutants of functions that changed are tried again,
and so are survivors once anything else changed. "Mutants" in docs/development.md says what to do with survivors.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from mutation_results import (
    ACCEPTED,
    DEAD,
    Mutant,
    accepted,
    function_name,
    left_out,
    matches,
    named,
    report,
    report_chosen,
    results,
    status_of,
)

ROOT: Final = Path(__file__).resolve().parent.parent

TESTS: Final[Mapping[str, Sequence[str]]] = {
    "server/core/tiering": ["tests/server/tiering"],
    "server/core/leases": ["tests/server/leases"],
    "server/core/scans": ["tests/server/scans"],
    "server/failover": ["tests/server/failover"],
    "lake/iceberg": ["tests/lake/iceberg", "tests/lake/deletes", "tests/lake/by_position"],
    "lake/key_index": ["tests/lake/key_index"],
    "spark/round": ["tests/spark/round"],
}
"""The tests that judge each package, of which those are taken that need no process of their own."""

LEFT_OUT: Final = [
    "tests/server/tiering/test_definitions.py",
    "tests/server/failover/test_cut_off.py",
    "tests/server/failover/test_take_over.py",
    "tests/spark/round/test_keepalive.py",
    "tests/lake/iceberg/test_bounds_in_readers.py",
    "tests/lake/iceberg/test_metrics_as_iceberg_does.py",
    "tests/lake/iceberg/pruning/test_bloom_filters.py::test_only_the_named_columns_have_filters",
    "tests/lake/deletes/test_deleted_rows.py",
    "tests/lake/by_position/test_positions_of_rounds.py::test_pieces_that_are_written_at_the_same_time_delete_rows_of_each_other",
    "tests/lake/iceberg/test_iceberg_commit.py::test_many_files_are_committed_by_manifests_in_the_order_of_their_pieces",
    "tests/lake/iceberg/test_iceberg_commit.py::test_a_stale_driver_with_many_files_loses_and_its_manifests_go",
]
"""Tests that take too long for hundreds of mutants: each starts a server, or many jobs of Spark."""

SPARK: Final = {"lake/iceberg"}
"""The packages whose tests may use Spark. All mutants share one JVM, in which each has a session of its own."""

POSTGRES: Final = {"server/failover"}
"""The packages that are nothing without PostgreSQL. All mutants share one server, in which each has databases."""

_MEMORY: Final = Path("/dev/shm")
_MARKERS: Final = ("cluster", "airflow", "system", "slow", "long")
"""The markers of tests that are left out, besides `spark` and `postgres`."""
_TEXTS: Final = [r"\b_?logger\.", r'^\s*"[^"]* [^"]*"[,)]?$', r'\bwith lake_errors\(f"[^"]*"\):$']
"""Lines with texts for people: calls of the logger, and sentences of errors or parts of them. No test should pin words.

No mutants are made of them. mutmut makes none of docstrings and f-strings by itself.
"""


def main() -> int:
    """Run mutmut on a package and print the score and the survivors."""
    arguments = _parser().parse_args()
    package: str = arguments.package
    if package not in TESTS:
        given = "No package is named" if package is None else f"{package} is none of the packages"
        print(f"{given}: expected make mutate PACKAGE=NAME, where NAME is {', '.join(TESTS)}", file=sys.stderr)
        return 2
    with_spark = package in SPARK and not arguments.without_spark
    name = package.replace("/", "-") + ("-without-spark" if arguments.without_spark else "")
    copy = ROOT / ".cache" / "mutation" / name
    if not arguments.report:
        if arguments.fresh:
            shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir(parents=True, exist_ok=True)
        prepare(ROOT, copy, package, with_spark=with_spark)
        names = arguments.only
        if arguments.sample is not None:
            without = left_out(ACCEPTED.read_text(), package)
            names = [name for name in mutant_names(copy, package) if not matches(function_name(name), without)]
            names = untried(copy, sampled(names, arguments.sample, arguments.seed))
        if arguments.sample is None or names:
            with _shared_spark(with_spark) as spark, _shared_postgres(package in POSTGRES) as postgres:
                variables = {**spark, **postgres}
                ran = _run_mutmut(copy, arguments.children, names, variables)
            if ran:
                return ran
    known = ACCEPTED.read_text()
    found, reasons = list(results(copy, package)), accepted(known, package)
    if arguments.without_spark:
        found = [replace(each, status="untried") if _needs_spark(copy, each) else each for each in found]
    if not arguments.only:
        return report(package, found, reasons, left_out(known, package))
    chosen = named(found, arguments.only)
    if not chosen:
        examples = ", ".join(mutant.name for mutant in found[:1]) or "those that a first run makes"
        print(f"no mutant of {package} is named {' or '.join(arguments.only)}: expected names such as {examples}")
        return 2
    return report_chosen(chosen, reasons)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("package", nargs="?", help=f"one of {', '.join(TESTS)}")
    parser.add_argument("--fresh", action="store_true", help="forget what earlier runs found")
    parser.add_argument("--report", action="store_true", help="only print what earlier runs found")
    parser.add_argument("--children", type=int, default=os.cpu_count(), help="how many mutants are tried at once")
    parser.add_argument(
        "--only", nargs="*", default=[], help="names of the mutants to try and to judge, with * for any characters"
    )
    parser.add_argument("--sample", type=float, metavar="PERCENT", help="try only this part of the mutants")
    parser.add_argument("--without-spark", action="store_true", help="try only what tests without Spark run")
    parser.add_argument("--seed", default="1", help="which mutants are the part that is tried")
    return parser


def _needs_spark(copy: Path, mutant: Mutant) -> bool:
    """Return whether no test without Spark runs a mutant because its module uses the JVM."""
    source = copy / f"{mutant.name.partition('.x')[0].replace('.', '/')}.py"
    return mutant.status == "untested" and bool(re.search("py4j|pyspark", source.read_text()))


def prepare(root: Path, copy: Path, package: str, *, with_spark: bool = False) -> None:
    """Bring the copy up to date, and forget results that a change made worthless."""
    changed = _mirror(root / "engine" / "fluss_tiering", copy / "fluss_tiering")
    changed |= _mirror(root / "tests", copy / "tests")
    changed |= _mirror(root / "tools", copy / "tools")
    changed |= _mirror(root / "verification", copy / "verification")
    of_mutmut = _mutmut_settings(package, with_spark=with_spark)
    settings = (root / "pyproject.toml").read_text() + of_mutmut
    made_with = hashlib.sha256(of_mutmut.encode()).hexdigest()
    seal = copy / "mutants" / "made-with"
    if not seal.exists() or seal.read_text() != made_with:
        shutil.rmtree(copy / "mutants", ignore_errors=True)
        seal.parent.mkdir()
        seal.write_text(made_with)
    (copy / "pyproject.toml").write_text(settings)
    if changed:
        (copy / "mutants" / "mutmut-stats.json").unlink(missing_ok=True)
        _try_again(copy)


def _mutmut_settings(package: str, *, with_spark: bool) -> str:
    """What mutmut is told. JSON's strings and lists are TOML's as well."""
    markers = [*_MARKERS, *([] if with_spark else ["spark"]), *([] if package in POSTGRES else ["postgres"])]
    settings = {
        "source_paths": ["fluss_tiering"],
        "only_mutate": [f"fluss_tiering/{package}/*"],
        "also_copy": ["tools", "verification"],
        "do_not_mutate_patterns": _TEXTS,
        "pytest_add_cli_args": [
            *("-m", f"not ({' or '.join(markers)})"),
            *("-p", "no:cacheprovider", "-p", "no:xdist", "-p", "fastest_first"),
            # It collects garbage twice in a run of pytest, which takes longer than most tests.
            *("-p", "no:unraisableexception"),
            *(f"--ignore={path}" for path in LEFT_OUT if path.startswith(tuple(TESTS[package])) and "::" not in path),
            *(f"--deselect={path}" for path in LEFT_OUT if path.startswith(tuple(TESTS[package])) and "::" in path),
        ],
        "pytest_add_cli_args_test_selection": list(TESTS[package]),
        "process_isolation": "forkserver",
        "timeout_constant": 2.0,
        "track_dependencies": False,
        "use_git_change_detection": False,
        "on_dependency_change": "ignore",
    }
    return "\n[tool.mutmut]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items())


def _mirror(source: Path, target: Path) -> bool:
    """Make the target hold what the source holds, and return whether anything was different.

    Files that are equal keep their times, because mutmut makes the mutants of a file anew if it is newer than they are.
    """
    wanted = {
        path.relative_to(source) for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    }
    present = {
        path.relative_to(target) for path in target.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    }
    changed = False
    for path in present - wanted:
        (target / path).unlink()
        (target.parent / "mutants" / target.name / path).unlink(missing_ok=True)
        changed = True
    for path in wanted:
        content = (source / path).read_bytes()
        if path not in present or (target / path).read_bytes() != content:
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            (target / path).write_bytes(content)
            (target.parent / "mutants" / target.name / path).unlink(missing_ok=True)
            changed = True
    return changed


def _try_again(copy: Path) -> None:
    """Forget the verdict on every mutant that is alive. Those that were killed stay killed."""
    for path in (copy / "mutants").rglob("*.meta"):
        meta = json.loads(path.read_text())
        codes = meta["exit_code_by_key"]
        meta["exit_code_by_key"] = {name: code if status_of(code) in DEAD else None for name, code in codes.items()}
        path.write_text(json.dumps(meta))


def mutant_names(copy: Path, package: str) -> Iterator[str]:
    """Return the names of all mutants of the package."""
    with chdir(copy):
        from mutmut.mutation.file_mutation import mutate_file_contents  # noqa: PLC0415 - it reads its settings here
        from mutmut.utils.format_utils import get_mutant_name  # noqa: PLC0415

        for source in sorted(Path("fluss_tiering", package).rglob("*.py")):
            for name in mutate_file_contents(str(source), source.read_text()).mutant_names:
                yield get_mutant_name(source, name)


def sampled(names: Iterable[str], percent: float, seed: str) -> list[str]:
    """Return a part of the names, the same for each seed, whichever other mutants there are."""

    def draw(name: str) -> float:
        return int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:4]) / 2**32

    return [name for name in names if 100 * draw(name) < percent]


def untried(copy: Path, names: Iterable[str]) -> list[str]:
    """Return those of the mutants that have no verdict."""
    codes = {}
    for path in (copy / "mutants").rglob("*.meta"):
        codes.update(json.loads(path.read_text())["exit_code_by_key"])
    return [name for name in names if codes.get(name) is None]


@contextmanager
def _shared_spark(wanted: bool) -> Iterator[dict[str, str]]:
    """Start Spark for all mutants, if they need it, and yield the variables by which tests find it."""
    if not wanted:
        yield {}
        return
    jars = subprocess.run(
        [sys.executable, ROOT / "tools" / "fetch_spark_jars.py"], check=True, capture_output=True, text=True
    )
    with subprocess.Popen(
        [sys.executable, ROOT / "tests" / "spark_session.py"],
        env={**os.environ, "FLUSS_TIERING_SPARK_JARS": jars.stdout.strip()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as running:
        assert running.stdout is not None
        port, secret = running.stdout.readline().strip(), running.stdout.readline().strip()
        if not port or not secret:
            raise RuntimeError("tests/spark_session.py could not start Spark: run it by hand to see why")
        try:
            yield {"PYSPARK_GATEWAY_PORT": port, "PYSPARK_GATEWAY_SECRET": secret}
        finally:
            # Spark ends with its input.
            running.communicate()


@contextmanager
def _shared_postgres(wanted: bool) -> Iterator[dict[str, str]]:
    """Start PostgreSQL for all mutants, if they need it, and yield the variable by which tests find it."""
    if not wanted:
        yield {}
        return
    sys.path.insert(0, str(ROOT / "tests"))
    from postgres_support import SHARED, Postgres  # noqa: PLC0415 - only some packages need it

    with tempfile.TemporaryDirectory(prefix="postgres-of-mutants-", ignore_cleanup_errors=True) as folder:
        server = Postgres(Path(folder))
        try:
            yield {SHARED: server.url}
        finally:
            server.stop()


def _run_mutmut(copy: Path, children: int, only: Sequence[str], variables: Mapping[str, str]) -> int:
    safely = str(ROOT / "tools" / "mutmut_safely.py")
    command = [sys.executable, safely, "run", "--max-children", str(children), *only]
    # The databases of tests are written thousands of times, and need not outlive anything: they are kept in memory.
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
        environment = {
            **os.environ,
            **variables,
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTEST_DEBUG_TEMPROOT": folder,
            "PYTHONPATH": str(ROOT / "tools"),
        }
        if sys.stdout.isatty():
            return subprocess.run(command, cwd=copy, env=environment, check=False).returncode
        log = copy / "mutmut.log"
        with log.open("w") as output:
            ran = subprocess.run(
                command, cwd=copy, env=environment, stdout=output, stderr=subprocess.STDOUT, check=False
            )
    if ran.returncode:
        print(log.read_text()[-4000:])
    return ran.returncode


if __name__ == "__main__":
    sys.exit(main())
