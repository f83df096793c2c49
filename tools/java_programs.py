"""Small Java programs of benchmarks and tests: compiled and started with the machine's Java."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

RELEASE: Final = "17"
_TIMEOUT_S: Final = 120
_OPENED: Final = ("java.lang", "java.net", "java.nio", "java.util", "java.util.concurrent", "java.time", "sun.nio.ch")
"""Packages that Fluss's Arrow and Flink's serialisers look into."""


def program(name: str) -> str:
    """`java` or `javac` of JAVA_HOME, else the one on PATH."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", name)) if home else name


def compile_into(classes: Path, sources: Iterable[Path], class_path: Iterable[Path]) -> None:
    """Writes the sources' class files into a folder.

    Raises:
        subprocess.CalledProcessError: they do not compile; the compiler has said why.
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
    """The command that runs a main class."""
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
    return [program("java"), *jvm, *opened, "-cp", joined(class_path), main, *arguments]


def joined(class_path: Iterable[Path]) -> str:
    """The class path as Java takes it."""
    return os.pathsep.join(map(str, class_path))
