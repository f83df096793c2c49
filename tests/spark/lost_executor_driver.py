"""A driver whose workers are stopped or killed in mid-write, on the first bytes of each file.

    lost_executor_driver.py hold|die FOLDER [the arguments of fluss-tiering]

A worker that is to hold writes its process and those above it into a file of the folder, and goes on when `go` exists.
One that is to die kills its executor in each attempt.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from fluss_tiering.cli.main import app
from fluss_tiering.lake.iceberg.table import IcebergTable
from fluss_tiering.lake.protocol import LakeFileWriter, PieceWriter


class StopsInMidWrite(LakeFileWriter):
    """Executors get this class by its value, since it belongs to the program that runs."""

    def __init__(self, writer: LakeFileWriter, what: str, folder: str) -> None:
        self._writer = writer
        self._what = what
        self._folder = folder

    def open_piece(self, bucket: int, location: str, attempt: int, *partition: tuple[str, ...]) -> PieceWriter:
        writer = self._writer.open_piece(bucket, location, attempt, *partition)
        write = writer.write

        def write_half_and_stop(rows, offsets, timestamps) -> None:
            half = rows.num_rows // 2
            write(rows.slice(0, half), offsets[:half], timestamps[:half])
            self._stop(location)
            write(rows.slice(half), offsets[half:], timestamps[half:])

        writer.write = write_half_and_stop
        return writer

    def _stop(self, location: str) -> None:
        python = os.getpid()
        daemon = os.getppid()
        executor = self._parent(daemon)
        if self._what == "die":
            os.kill(executor, signal.SIGKILL)
        seen = {"python": python, "executor": executor, "worker": self._parent(executor), "piece": location}
        name = Path(self._folder, str(python))
        name.with_suffix(".new").write_text(json.dumps(seen))
        name.with_suffix(".new").rename(name.with_suffix(".held"))
        while not Path(self._folder, "go").exists():
            time.sleep(0.02)

    @staticmethod
    def _parent(process: int) -> int:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def main() -> None:
    what, folder, *arguments = sys.argv[1:]
    file_writer = IcebergTable.file_writer
    IcebergTable.file_writer = lambda table: StopsInMidWrite(file_writer(table), what, folder)
    app(arguments)


if __name__ == "__main__":
    main()
