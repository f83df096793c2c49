"""Fluss's own reader of lake tables as a judge: a Java program that reads what the cluster calls readable."""

from __future__ import annotations

import struct
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Final

import fetch_flink_jars
import java_programs
from fetch_fluss_jars import VERSIONS
from fluss_support import FlussCluster
from fluss_tiering.model.data_type import DataType, DataTypeRoot
from fluss_tiering.model.table import TablePath
from torture.arrow_values import comparable
from torture.judging.checks import Readable, Tally, WrongError, compare
from torture.judging.limits import FLUSS, column_limit
from torture.model import TableModel
from torture.values import Value

_SHOWN_CHARACTERS: Final = 2000
_SOURCES: Final = Path(__file__).parent / "java"


class FlussReader:
    """The program. It starts at the first question, and again after it ended.

    Args:
        folder: The folder for its classes and its log.
        cluster: The cluster.
    """

    def __init__(self, folder: Path, cluster: FlussCluster) -> None:
        self._folder = folder
        self._cluster = cluster
        self._process: subprocess.Popen[str] | None = None

    def read(self, path: TablePath, columns: Sequence[int]) -> tuple[int, list[list[str]]]:
        """Return the id of the snapshot that is readable, and the raw values of its rows.

        Raises:
            WrongError: The reader refuses the table.
        """
        process = self._started()
        assert process.stdin is not None
        process.stdin.write(" ".join([path.database, path.table, *map(str, columns)]) + "\n")
        process.stdin.flush()
        snapshot, rows = 0, []
        while (line := self._line()) != "end":
            kind, _, rest = line.partition(" ")
            if kind == "row":
                rows.append(rest.split(" "))
            elif kind == "snapshot":
                snapshot = int(rest)
            else:
                log = (self._folder / "reader.log").read_text(errors="replace")
                raise WrongError(f"{FLUSS} refuses: {rest[:60]}", f"{rest or 'it ended'}\n{log[-_SHOWN_CHARACTERS:]}")
        return snapshot, rows

    def stop(self) -> None:
        """End the program, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _started(self) -> subprocess.Popen[str]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        classes = self._folder / "classes"
        class_path = [classes, *fetch_flink_jars.class_path(VERSIONS[self._cluster.version])]
        if not classes.exists():
            java_programs.compile_into(classes, sorted(_SOURCES.glob("*.java")), class_path)
        catalog = [f"{key}={value}" for key, value in self._cluster.lake_catalog.items()]
        jvm = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        with (self._folder / "reader.log").open("a") as log:
            self._process = subprocess.Popen(
                java_programs.java_command("RawRows", [self._cluster.bootstrap, *catalog], class_path, jvm),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                bufsize=1,
            )
        while self._line() != "ready":
            assert self._process.poll() is None, "Fluss's reader does not start"
        return self._process

    def _line(self) -> str:
        """Return the next line, which is empty at the end of the program."""
        assert self._process is not None
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")


def check_with_fluss(
    reader: FlussReader, path: TablePath, newest: int, lake: Readable, model: TableModel, tally: Tally
) -> None:
    """Compare a lake table with the model by Fluss's own reader, except for nested columns.

    Args:
        reader: The reader.
        path: The table.
        newest: The id of the newest snapshot. The reader only knows that of the last round.
        lake: The lake table.
        model: What it must hold.
        tally: Where comparisons are counted.

    Raises:
        WrongError: the reader sees something else.
    """
    limits = {place: column_limit(FLUSS, column, ()) for place, column in enumerate(lake.columns)}
    for limit in filter(None, limits.values()):
        tally.left_out[f"column: {limit}"] += 1
    places = [place for place, limit in limits.items() if limit is None]
    if not places:
        return
    with tally.timed(f"{FLUSS} reads"):
        snapshot, raw = reader.read(path, places)
    if snapshot != newest:
        tally.left_out["Fluss's reader reads the snapshot of the last round"] += 1
        return
    columns = [lake.columns[place] for place in places]
    found = Counter(
        comparable(tuple(_value(column.data_type, text) for column, text in zip(columns, row, strict=True)))
        for row in raw
    )
    expected = Counter(comparable(tuple(row[place] for place in places)) for row in model.lake_rows())
    tally.comparisons[f"{FLUSS} rows"] += len(raw)
    compare(FLUSS, [column.name for column in columns], expected, found)


def _double(text: str) -> float:
    return float(struct.unpack("<d", struct.pack("<q", int(text)))[0])


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("x"))


_FROM_TEXT: Final[dict[DataTypeRoot, Callable[[str], Value]]] = {
    DataTypeRoot.BOOLEAN: lambda text: text == "true",
    DataTypeRoot.FLOAT: _double,
    DataTypeRoot.DOUBLE: _double,
    DataTypeRoot.DECIMAL: Decimal,
    DataTypeRoot.CHAR: lambda text: _bytes(text).decode(),
    DataTypeRoot.STRING: lambda text: _bytes(text).decode(),
    DataTypeRoot.BINARY: _bytes,
    DataTypeRoot.BYTES: _bytes,
}


def _value(data_type: DataType, text: str) -> Value:
    return None if text == "null" else _FROM_TEXT.get(data_type.root, int)(text)
