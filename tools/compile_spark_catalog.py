"""Compiles the Spark catalog in `engine/java` against the jars of the installed pyspark into the engine's package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pyspark

from fluss_tiering.spark.startup.catalog_conf import CATALOG_JAR

SOURCES = Path(__file__).resolve().parent.parent / "engine" / "java"
RELEASE = "17"
"""The oldest Java that Spark runs on."""


def compile_into(classes: Path) -> None:
    """Writes class files and what else belongs in the jar."""
    jars = Path(pyspark.__file__).parent / "jars"
    home = os.environ.get("JAVA_HOME")
    subprocess.run(
        [
            *(
                str(Path(home, "bin", "javac")) if home else "javac",
                "--release",
                RELEASE,
                "-Xlint:all,-path",
                "-Werror",
            ),
            *("-cp", f"{jars}/*", "-d", str(classes)),
            *(str(source) for source in sorted(SOURCES.rglob("*.java"))),
        ],
        check=True,
        timeout=300,
    )
    shutil.copytree(SOURCES / "META-INF", classes / "META-INF")


def pack(classes: Path, jar: Path) -> None:
    """The same classes give the same bytes, whenever they are packed."""
    jar.parent.mkdir(exist_ok=True)
    unfinished = jar.with_suffix(".tmp")
    with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(classes.rglob("*")):
            if path.is_file():
                archive.writestr(zipfile.ZipInfo(path.relative_to(classes).as_posix()), path.read_bytes())
    unfinished.replace(jar)


def main() -> None:
    """Compiles and packs."""
    with tempfile.TemporaryDirectory() as scratch:
        try:
            compile_into(Path(scratch))
        except subprocess.CalledProcessError as error:
            sys.exit(error.returncode)
        pack(Path(scratch), CATALOG_JAR)


if __name__ == "__main__":
    main()
