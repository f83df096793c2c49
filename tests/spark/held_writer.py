"""Workers that wait: the stage of a round stops at its first file until the test lets it continue."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle

import waiting
from fluss_tiering.lake.iceberg.table import IcebergTable
from fluss_tiering.lake.protocol import LakeFileWriter, PieceWriter
from waiting import wait_until


class _HeldWriter(LakeFileWriter):
    def __init__(self, writer: LakeFileWriter, started: str, go: str) -> None:
        self._writer = writer
        self._started = started
        self._go = go

    def open_piece(self, bucket: int, location: str, attempt: int, *partition: tuple[str, ...]) -> PieceWriter:
        Path(self._started).touch()
        wait_until(Path(self._go).exists)
        return self._writer.open_piece(bucket, location, attempt, *partition)


class HeldStage:
    """Holds the stages of rounds that begin from now on until `go`."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        # Workers do not have the folder of the tests on their path.
        for module in (sys.modules[__name__], waiting):
            cloudpickle.register_pickle_by_value(module)
        self._started, self._go = folder / "started", folder / "go"
        file_writer = IcebergTable.file_writer

        def held(table: IcebergTable) -> LakeFileWriter:
            return _HeldWriter(file_writer(table), str(self._started), str(self._go))

        monkeypatch.setattr(IcebergTable, "file_writer", held)

    @property
    def holds(self) -> bool:
        """Whether a worker waits."""
        return self._started.exists()

    def wait(self) -> None:
        """Return when a worker waits."""
        wait_until(self._started.exists)

    def go(self) -> None:
        self._go.touch()
