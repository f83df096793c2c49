"""Compile and start the small Java programs of benchmarks and tests with the Java of the machine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

RELEASE: Final = "17"
_TIMEOUT_S: Final = 120
_OPENED: Final = ("java.lang", "java.net", "java.nio", "java.util", "java.util.concurrent", "java.time", "sun.nio.ch")
"""Packages that the Arrow library of Fluss and the serialisers of Flink access by reflection."""


def program(name: str) -> str:
    """Return the path of `java` or `javac` in JAVA_HOME, or the bare name if JAVA_HOME is not set."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", name)) if home else name


def compile_into(classes: Path, sources: Iterable[Path], class_path: Iterable[Path]) -> None:
    """Compile the sources into a folder of class files.

    Raises:
        subprocess.CalledProcessError: The sources do not compile. The compiler has printed why.
    """
    classes.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [
            *(program("javac"), "--release", RELEASE, "-proc:none"),
            *("-cp", joined(class_path), "-d", str(classes), *map(str, sources)),
        ],
        check=True,
        timeout=_TIMEOUT_S,
    )


def java_command(main: str, arguments: Iterable[str], class_path: Iterable[Path], jvm: Sequence[str] = ()) -> list[str]:
    """Return the command that runs a main class."""
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
    return [program("java"), *jvm, *opened, "-cp", joined(class_path), main, *arguments]


def joined(class_path: Iterable[Path]) -> str:
    """Return the class path in the form that Java expects."""
    return os.pathsep.join(map(str, class_path))
