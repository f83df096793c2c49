"""`make test-install`: both packages resolve under Airflow's constraints and beside what else people install.

Nothing is installed. A neighbour must keep the version that it has in the same Airflow without us. The constraints are
those with which Airflow was installed on Python 3.12, as a managed service copies them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
_PYTHON: Final = "3.12"
_OURS: Final = (f"fluss-tiering @ {(ROOT / 'engine').as_uri()}", f"airflow-provider-fluss @ {ROOT.as_uri()}")
_AIRFLOWS: Final = ("3.1", "3.2", "3.3")
_NEIGHBOURS: Final = (
    ("dbt-core", "dbt-snowflake"),
    ("dbt-core", "dbt-bigquery"),
    ("apache-beam",),
    ("apache-airflow-providers-snowflake",),
    ("apache-airflow-providers-google",),
    ("apache-airflow-providers-amazon",),
    ("apache-airflow-providers-databricks",),
    ("apache-airflow-providers-cncf-kubernetes",),
    ("apache-airflow-providers-apache-livy",),
)
_SHOWN: Final = ("apache-airflow", "protobuf", "grpcio", "rich", "typer", "pyspark", "pyspark-client", "numba")


def resolve(requirements: Sequence[str], constraints: Path | None = None) -> dict[str, str] | str:
    """Return the version of each package that uv chooses, or why it can choose none."""
    uv = str(Path(sys.executable).with_name("uv"))
    command = [uv, "pip", "compile", "--quiet", "--python-version", _PYTHON, "--no-header", "--no-annotate", "-"]
    if constraints is not None:
        command += ["--constraints", str(constraints)]
    done = subprocess.run(
        command,
        input="\n".join(requirements),
        capture_output=True,
        text=True,
        check=False,
        # The names and versions of our packages need no jar.
        env={**os.environ, "HATCH_BUILD_NO_HOOKS": "true"},
    )
    if done.returncode != 0:
        return done.stderr.strip()
    return dict(re.findall(r"^([\w.-]+)(?:\[[\w,.-]*\])?==(\S+)", done.stdout, re.MULTILINE))


def _beside(airflow: str, neighbours: Sequence[str]) -> str | None:
    """Return what is wrong beside these neighbours; None if nothing is."""
    there = [f"apache-airflow=={airflow}.*", "apache-airflow-providers-apache-spark", *neighbours]
    alone, together = resolve(there), resolve([*there, *_OURS])
    if isinstance(alone, str):
        return f"the neighbours do not fit this Airflow by themselves: {alone}"
    if isinstance(together, str):
        return together
    changed = [
        f"{name} {alone[name]} -> {together.get(name)}" for name in neighbours if together.get(name) != alone[name]
    ]
    return ", ".join(changed) or None


def main() -> None:
    """Print a line for each combination, and exit with 1 if one does not fit."""
    wrong = 0

    def tell(what: str, reason: str | None, more: str = "") -> None:
        nonlocal wrong
        wrong += reason is not None
        sys.stdout.write(f"{'fits    ' if reason is None else 'DOES NOT'} {what}{more}\n")
        if reason is not None:
            sys.stdout.write(f"         {reason}\n")
        sys.stdout.flush()

    for constraints in sorted(Path(__file__).parent.glob("airflow-*.txt")):
        found = resolve(_OURS, constraints)
        more = "" if isinstance(found, str) else ": " + " ".join(f"{k}=={found[k]}" for k in _SHOWN if k in found)
        tell(f"constraints {constraints.stem}", found if isinstance(found, str) else None, more)
    for airflow in _AIRFLOWS:
        for neighbours in ((), *_NEIGHBOURS):
            tell(f"Airflow {airflow}, {' and '.join(neighbours) or 'alone'}", _beside(airflow, neighbours))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
