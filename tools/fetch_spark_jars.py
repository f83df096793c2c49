"""Fetch the jars that Spark needs into `.cache/jars`, once, and print them as a comma-separated list.

`FLUSS_TIERING_SPARK_JARS` takes this list, so that tests and examples need not resolve the jars at each start of Spark.
Spark's own Ivy resolves the jars, so that the Ivy and Maven settings of the machine apply as in production.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fluss_tiering.spark.versions import packages

JARS = Path(__file__).resolve().parent.parent / ".cache" / "jars"


def resolve(into: Path, wanted: Sequence[str]) -> None:
    """Let Spark's launcher resolve the packages, and move the jar of each package into a folder."""
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415  (slow, and not needed when the jars are there)

    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=into) as scratch:
        os.environ["PYSPARK_SUBMIT_ARGS"] = (
            f"--packages {','.join(wanted)} --conf spark.jars.ivy={scratch} pyspark-shell"
        )
        gateway = launch_gateway()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(timeout=60)
        for package in wanted:
            group, artifact, version = package.split(":")
            shutil.move(Path(scratch) / "jars" / f"{group}_{artifact}-{version}.jar", into / file_name(package))


def file_name(package: str) -> str:
    """Return the name of the jar in the cache: `artifact-version.jar`."""
    _, artifact, version = package.split(":")
    return f"{artifact}-{version}.jar"


def jars() -> list[Path]:
    """Return the paths of the jars. Missing jars are fetched first."""
    paths = [JARS / file_name(package) for package in packages()]
    if not all(path.exists() for path in paths):
        resolve(JARS, packages())
    return paths


def main() -> None:
    """Print the list."""
    sys.stdout.write(",".join(str(path) for path in jars()) + "\n")


if __name__ == "__main__":
    main()
