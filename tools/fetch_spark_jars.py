"""Fetch the jars that Spark needs into `.cache/jars`, once, and print them as a comma-separated list.

`FLUSS_TIERING_SPARK_JARS` takes this list, so that tests and examples need not resolve the jars at each start of Spark.
Spark's own Ivy resolves the jars, so that the Ivy and Maven settings of the machine apply as in production. Ivy
compares them with checksums from the same repository. Here they are also compared with the hashes that this file pins.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from fluss_tiering.spark.versions import packages

JARS = Path(__file__).resolve().parent.parent / ".cache" / "jars"

SHA256: Final = {
    "org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.12.0": (
        "8dd8c90e54ed1a20f2461309d047a255ee56382eb7c0a46162b27a4936fd86dc"
    ),
    "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0": (
        "63c3b812549dc232c1920865ff42436df8604a9bbacd693930985c06bd97e6dc"
    ),
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0": (
        "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82"
    ),
    "org.xerial:sqlite-jdbc:3.54.1.0": "f8dce420a6016278497f4f0560f65602b9db858de141b541cf91a4644ebe4639",
}
"""The SHA-256 of the jar of each Maven package, as Maven Central has it."""


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
    """Return the paths of the jars. Missing jars are fetched first.

    Raises:
        SystemExit: A jar that was fetched is not the one whose hash is pinned.
    """
    paths = [JARS / file_name(package) for package in packages()]
    if not all(path.exists() for path in paths):
        resolve(JARS, packages())
        for package, path in zip(packages(), paths, strict=True):
            check(path, package)
    return paths


def check(jar: Path, package: str) -> None:
    """Compare a jar with the hash that is pinned for its package. A jar that differs is removed.

    Raises:
        SystemExit: It differs.
    """
    with jar.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if found != SHA256[package]:
        jar.unlink()
        raise SystemExit(
            f"the jar of {package} has the SHA-256 {found}: expected {SHA256[package]}. It is not the one that was "
            "published; look at the repository that your Ivy settings name"
        )


def main() -> None:
    """Print the list."""
    sys.stdout.write(",".join(str(path) for path in jars()) + "\n")


if __name__ == "__main__":
    main()
