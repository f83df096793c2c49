"""The combinations of versions, and the environments in which they run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / ".cache" / "matrix"
PYSPARK: Final = {"3.5": "3.5.9", "4.0": "4.0.5", "4.1": "4.1.3"}
ICEBERG: Final = {
    "3.5": ("2.12", ("1.10.1", "1.11.0", "1.12.0")),
    "4.0": ("2.13", ("1.10.1", "1.11.0")),
    "4.1": ("2.13", ("1.11.0", "1.12.0")),
}
"""Spark -> the Scala version of pyspark, and the releases of Iceberg that have a runtime for this Spark."""
_JAVA: Final = ("17", "21", "25")
_PYTHON: Final = ("3.11", "3.12", "3.13")
_SQLITE: Final = "org.xerial:sqlite-jdbc:3.54.1.0"
_UNPINNED: Final = ("pyspark", "pyspark-client", "py4j")


@dataclass(frozen=True, slots=True)
class Combination:
    """One combination of versions.

    Attributes:
        spark: The version of Spark, as "4.1".
        iceberg: The version of Iceberg's runtime.
        java: The major version of Java.
        java_home: The folder of that Java.
        python: The version of Python, as "3.11".
        interpreter: The Python to make the environment with.
    """

    spark: str
    iceberg: str
    java: str
    java_home: Path
    python: str
    interpreter: Path

    @property
    def name(self) -> str:
        """A name that no other combination has."""
        return f"spark-{self.spark}-iceberg-{self.iceberg}-java-{self.java}-python-{self.python}"

    @property
    def packages(self) -> tuple[str, str]:
        """The Maven packages of the combination."""
        scala, _ = ICEBERG[self.spark]
        return f"org.apache.iceberg:iceberg-spark-runtime-{self.spark}_{scala}:{self.iceberg}", _SQLITE


def combinations() -> Iterator[Combination]:
    """Yield every runtime on the oldest Java and Python, and the newest runtime on each other Java and Python."""
    javas, interpreters = _javas(), pythons()
    for spark, (_, releases) in ICEBERG.items():
        for release in releases:
            newest = release == releases[-1]
            for java, home in javas.items() if newest else list(javas.items())[:1]:
                yield Combination(spark, release, java, home, *next(iter(interpreters.items())))
            for python, interpreter in list(interpreters.items())[1:] if newest else ():
                yield Combination(spark, release, *next(iter(javas.items())), python, interpreter)


def missing() -> list[str]:
    """Return what is wanted and not on this machine."""
    lacks = [f"Java {each}" for each in _JAVA if each not in _javas()]
    return lacks + [f"Python {each}" for each in _PYTHON if each not in pythons()]


def environment(combination: Combination) -> Path:
    """Make the environment of a combination, unless it is there, and return its Python."""
    pyspark = PYSPARK[combination.spark]
    folder = FOLDER / f"python-{combination.python}-pyspark-{pyspark}"
    python = folder / "bin" / "python"
    if (folder / ".installed").exists():
        return python
    constraints = FOLDER / "constraints.txt"
    FOLDER.mkdir(parents=True, exist_ok=True)
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    constraints.write_text("\n".join(pin for pin in pins if pin.partition("==")[0] not in _UNPINNED))
    _uv("venv", "--clear", "--python", str(combination.interpreter), str(folder))
    _uv(
        *("pip", "install", "--python", str(python), "--constraints", str(constraints)),
        *("--editable", f"{ROOT / 'engine'}[spark,server]", f"pyspark=={pyspark}", "pandas", "setuptools"),
    )
    (folder / ".installed").touch()
    return python


def _uv(*arguments: str) -> None:
    command = [str(Path(sys.executable).with_name("uv")), "--quiet", *arguments]
    # The catalog's jar is there already.
    subprocess.run(command, check=True, env={**os.environ, "HATCH_BUILD_NO_HOOKS": "true"})


def _javas() -> dict[str, Path]:
    """Return the Javas of the machine by major version, the oldest first."""
    found: dict[str, Path] = {}
    homes = [Path(os.environ.get("JAVA_HOME", "/")), *sorted(Path("/usr/lib/jvm").glob("*"))]
    java = shutil.which("java")
    for home in (*homes, *([Path(java).resolve().parents[1]] if java else [])):
        release = home / "release"
        if not (home / "bin" / "java").exists() or not release.exists():
            continue
        if match := re.search(r'JAVA_VERSION="(\d+)', release.read_text()):
            found.setdefault(match[1], home.resolve())
    return {version: found[version] for version in _JAVA if version in found}


def pythons() -> dict[str, Path]:
    """Return the Pythons of the machine by version, the oldest first."""
    found = {f"{sys.version_info.major}.{sys.version_info.minor}": Path(sys.executable)}
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    for version in _PYTHON:
        command = shutil.which(f"python{version}")
        for python in (*([Path(command)] if command else []), *sorted(pyenv.glob(f"{version}.*/bin/python"))):
            # A shim of pyenv may stand for a version that is not switched on.
            if (
                version not in found
                and subprocess.run([python, "-V"], capture_output=True, check=False).returncode == 0
            ):
                found[version] = python
    return {version: found[version] for version in _PYTHON if version in found}
