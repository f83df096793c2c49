"""Compiles the Spark catalog in `java/` into the jar that the package carries.

`make setup` runs this file in a checkout, and the build hook in `hatch_build.py` runs it for a wheel. It needs a JDK
and the jars of pyspark. Beside these, the standard library is enough.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

ENGINE = Path(__file__).resolve().parent
SOURCES = ENGINE / "java"
JAR = ENGINE / "fluss_tiering" / "spark" / "jars" / "fluss-tiering-spark.jar"

RELEASE = "17"
"""The oldest Java that Spark runs on."""
PYSPARK = "pyspark>=4.1,<4.2"
"""The release whose jars the catalog is compiled against: it uses classes that only Spark 4.1 has."""
JARS_VARIABLE = "FLUSS_TIERING_BUILD_SPARK_JARS"
"""Environment variable: the folder `jars` of a Spark 4.1 to compile against, so that pyspark need not be downloaded."""
JDK_WANTED = (
    "install a JDK of Java 17 or 21 (Debian, Ubuntu: apt-get install openjdk-17-jdk-headless; macOS: brew install "
    "openjdk@17), or set JAVA_HOME to one"
)


class JarError(Exception):
    """The jar cannot be built; the message says why and what to do."""


def is_current() -> bool:
    """Tell whether the jar is there, whole, and newer than its sources and this file."""
    if not JAR.exists() or not zipfile.is_zipfile(JAR):
        return False
    built = JAR.stat().st_mtime
    # A folder's time tells of files that were removed from it.
    return all(source.stat().st_mtime <= built for source in (Path(__file__), SOURCES, *SOURCES.rglob("*")))


def compiler() -> str:
    """Return the path of the Java compiler.

    Raises:
        JarError: If there is none.
    """
    home = os.environ.get("JAVA_HOME")
    if home and not Path(home, "bin", "javac").exists():
        raise JarError(f"JAVA_HOME={home} has no bin/javac, which compiles the Spark catalog: {JDK_WANTED}")
    javac = str(Path(home, "bin", "javac")) if home else shutil.which("javac")
    if javac is None:
        raise JarError(f"there is no `javac` on PATH, which compiles the Spark catalog: {JDK_WANTED}")
    return javac


def build(*, warnings_are_errors: bool = False) -> None:
    """Compile the catalog and write the jar.

    Args:
        warnings_are_errors: Whether a warning of the compiler fails the build.

    Raises:
        JarError: If there is no compiler, if there are no jars of Spark, or if the sources do not compile.
    """
    lint = ["-Xlint:all,-path", "-Werror"] if warnings_are_errors else []
    with tempfile.TemporaryDirectory() as scratch:
        classes = Path(scratch)
        _compile(lint, classes)
        shutil.copytree(SOURCES / "META-INF", classes / "META-INF")
        _pack(classes)


def _compile(lint: list[str], classes: Path) -> None:
    javac = compiler()
    sources = [str(source) for source in sorted(SOURCES.rglob("*.java"))]
    command = [javac, "--release", RELEASE, *lint, "-cp", f"{_spark_jars()}/*", "-d", str(classes), *sources]
    try:
        subprocess.run(command, check=True, timeout=300)
    except (OSError, subprocess.SubprocessError) as error:
        raise JarError(f"{javac} did not compile the Spark catalog in {SOURCES} ({error}): {JDK_WANTED}") from error


def _spark_jars() -> Path:
    if given := os.environ.get(JARS_VARIABLE):
        if not any(Path(given).glob("spark-sql_*.jar")):
            raise JarError(f"{JARS_VARIABLE}={given} has no spark-sql jar: expected the folder `jars` of a Spark 4.1")
        return Path(given)
    found = find_spec("pyspark")
    jars = Path(found.origin).parent / "jars" if found and found.origin else None
    if jars is None or not jars.is_dir():
        raise JarError(f"{sys.executable} has no pyspark with jars, which the Spark catalog is compiled against")
    return jars


def _pack(classes: Path) -> None:
    """Write the jar: the same classes give the same bytes, whenever they are packed."""
    # Two builds of one tree may run at the same time, so each has a name of its own until its jar is whole.
    unfinished = JAR.with_suffix(f".{os.getpid()}.tmp")
    try:
        JAR.parent.mkdir(exist_ok=True)
        with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(classes.rglob("*")):
                if path.is_file():
                    archive.writestr(zipfile.ZipInfo(path.relative_to(classes).as_posix()), path.read_bytes())
        unfinished.replace(JAR)
    except OSError as error:
        raise JarError(
            f"cannot write the jar of the Spark catalog: {error}; build from a folder that is writable"
        ) from error


def main() -> None:
    """Build the jar of a checkout."""
    try:
        build(warnings_are_errors=True)
    except JarError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
