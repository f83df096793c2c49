"""Fluss's own reader of lake tables, which needs no cluster if it is told the snapshot."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

import java_programs
from fetch_fluss_jars import VERSIONS

_SOURCES = Path(__file__).parent / "java"


class RefusedError(AssertionError):
    """The reader ended with an error."""


class FlussLakeReader:
    """The reader of one version of Fluss.

    Args:
        folder: A folder for its classes.
        version: The name of the version, as "0.9.1".
    """

    def __init__(self, folder: Path, version: str) -> None:
        self._class_path = [folder, *_jars(version)]
        java_programs.compile_into(folder, sorted(_SOURCES.glob("*.java")), self._class_path)

    def keys(self, warehouse: Path, snapshot: int, column: int) -> list[int]:
        """Return the values of an INT column of the table `db.t` in a snapshot.

        Raises:
            RefusedError: The reader refuses the table.
        """
        catalog = ["type=hadoop", f"warehouse=file://{warehouse}"]
        command = java_programs.java_command(
            "SnapshotKeys",
            ["db", "t", str(snapshot), str(column), *catalog],
            self._class_path,
            ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"],
        )
        ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if ended.returncode:
            raise RefusedError(next((line for line in ended.stderr.splitlines() if "xception" in line), ended.stderr))
        return [int(line.removeprefix("row ")) for line in ended.stdout.splitlines() if line.startswith("row ")]


@cache
def _jars(name: str) -> list[Path]:
    version = VERSIONS[name]
    version.fetch()
    return [*sorted((version.jars / "lib").glob("*.jar")), *sorted((version.jars / "plugins/iceberg").glob("*.jar"))]
