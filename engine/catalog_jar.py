"""Compiles the Spark catalog and the other classes in `java/` into the jar that the package carries.

`make setup` runs this file in a checkout, and the build hook in `hatch_build.py` runs it where a checkout is packed. It
needs a JDK, the jars of pyspark, and Iceberg's runtime for Spark. Beside these, the standard library is enough.
A source archive holds the jar, so that building its wheel needs none of them.
"""

from __future__ import annotations

import hashlib
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

_DIGEST = "META-INF/sources.sha256"
"""The file of the jar that says which sources it was made from."""
RELEASE = "17"
"""The oldest Java that Spark runs on."""
PYSPARK = "pyspark>=4.1,<4.2"
"""The release whose jars the catalog is compiled against: it uses classes that only Spark 4.1 has."""
ICEBERG = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
"""The Maven package with Iceberg's classes. What is compiled against them uses only what older versions have, too."""
CHECKOUT_JARS = ENGINE.parent / ".cache" / "jars"
"""Where `make setup` puts Iceberg's runtime in a checkout."""
JARS_VARIABLE = "FLUSS_TIERING_BUILD_SPARK_JARS"
"""Environment variable: the folder `jars` of a Spark 4.1 to compile against, and perhaps another one with Iceberg's
runtime for Spark, separated like the entries of PATH, so that nothing need be downloaded."""
_ICEBERG_JAR = "iceberg-spark-runtime-*.jar"
JDK_WANTED = (
    "install a JDK of Java 17 or 21 (Debian, Ubuntu: apt-get install openjdk-17-jdk-headless; macOS: brew install "
    "openjdk@17), or set JAVA_HOME to one"
)


class JarError(Exception):
    """The jar cannot be built; the message says why and what to do."""


def is_current() -> bool:
    """Tell whether the jar is there, whole, and made from these sources by this file."""
    try:
        with zipfile.ZipFile(JAR) as jar:
            return jar.read(_DIGEST) == _digest()
    except (FileNotFoundError, KeyError, zipfile.BadZipFile):
        return False


def _digest() -> bytes:
    digest = hashlib.sha256()
    for path in (Path(__file__).resolve(), *sorted(path for path in SOURCES.rglob("*") if path.is_file())):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(ENGINE).as_posix()} {len(content)} ".encode() + content)
    return digest.hexdigest().encode()


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
    with tempfile.TemporaryDirectory() as scratch:
        folders = class_folders(Path(scratch))
        path = os.pathsep.join(f"{folder}/*" for folder in folders)
        command = [javac, "--release", RELEASE, *lint, "-cp", path, "-d", str(classes), *sources]
        _run(command, f"{javac} did not compile the Spark catalog in {SOURCES}", JDK_WANTED)


def _run(command: list[str], failure: str, remedy: str, environment: dict[str, str] | None = None) -> None:
    try:
        subprocess.run(command, check=True, timeout=300, env=environment)
    except (OSError, subprocess.SubprocessError) as error:
        raise JarError(f"{failure} ({error}): {remedy}") from error


def class_folders(scratch: Path) -> list[Path]:
    """Return folders with the jars of Spark and of Iceberg.

    Args:
        scratch: Where Iceberg's runtime is put if it has to be downloaded.

    Raises:
        JarError: If there are no jars of Spark, or none of Iceberg.
    """
    given = os.environ.get(JARS_VARIABLE)
    folders = [Path(each) for each in given.split(os.pathsep)] if given else [_jars_of_pyspark()]
    if not _have(folders, "spark-sql_*.jar"):
        raise JarError(f"{JARS_VARIABLE}={given} has no spark-sql jar: expected the folder `jars` of a Spark 4.1")
    if _have(folders, _ICEBERG_JAR):
        return folders
    if _have([CHECKOUT_JARS], _ICEBERG_JAR):
        return [*folders, CHECKOUT_JARS]
    if given:
        raise JarError(
            f"{JARS_VARIABLE}={given} has no jar of Iceberg: expected one of {ICEBERG} in a folder, which may be added "
            f"after {os.pathsep!r}"
        )
    _download(scratch)
    return [*folders, scratch / "jars"]


def _have(folders: list[Path], pattern: str) -> bool:
    return any(any(folder.glob(pattern)) for folder in folders)


def _download(scratch: Path) -> None:
    """Let Spark's launcher resolve Iceberg's runtime, so that the Ivy and Maven settings of the machine apply."""
    program = (
        "from pyspark.java_gateway import launch_gateway as go; jvm = go(); jvm.shutdown(); jvm.proc.stdin.close()"
    )
    arguments = f"--packages {ICEBERG} --conf spark.jars.ivy={scratch} pyspark-shell"
    _run(
        [sys.executable, "-c", f"{program}; jvm.proc.wait(60)"],
        f"Spark did not download {ICEBERG}, which the jar is compiled against",
        f"look at the network, or name a folder with it in {JARS_VARIABLE}",
        {**os.environ, "PYSPARK_SUBMIT_ARGS": arguments},
    )


def _jars_of_pyspark() -> Path:
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
            archive.writestr(zipfile.ZipInfo(_DIGEST), _digest())
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
