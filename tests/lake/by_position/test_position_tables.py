"""Real lake tables from which rounds delete by position, as the driver opens them and readers find them."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import numpy as np
from lake_support import Lake

from fluss_tiering.lake.iceberg.by_position import PositionFileWriter
from fluss_tiering.lake.protocol import FileContent
from fluss_tiering.model.table import TableInfo

COLUMNS = {"k": "INT NOT NULL", "v": "STRING"}


@dataclass
class PositionLake(Lake):
    """A lake table from which rows are deleted by position."""

    @property
    def table(self) -> TableInfo:
        table = super().table
        options = {**table.descriptor.properties, "table.datalake.delete-files": "position"}
        return replace(table, descriptor=replace(table.descriptor, properties=options))

    def round(self, rows: dict[int, str | None], number: int) -> list[FileContent]:
        """Write and commit the changes of a round, and return what kinds of files it wrote. None deletes a row."""
        lake = self.open()
        (live,) = lake.live_files([(0, ())]).values()
        piece = lake.file_writer().open_piece(0, lake.piece_location(0, f"round-{number}"), 0, (), live)
        piece.delete(self.batch({"k": key, "v": ""} for key in rows).select(["k"]))
        batch = self.batch({"k": key, "v": value} for key, value in rows.items() if value is not None)
        stamps = np.arange(batch.num_rows)
        piece.write(batch, stamps, stamps)
        files = piece.close()
        self.commit_files(lake, files)
        return [file.content for file in files]


def test_the_writer_knows_the_table(spark: Any, tmp_path: Path) -> None:
    lake = PositionLake(spark, tmp_path, COLUMNS, ("k",))
    assert writer_of(lake).base == 0
    lake.round({1: "one"}, 1)
    writer = writer_of(lake)
    plain = Lake(spark, tmp_path, COLUMNS, ("k",)).open().file_writer()
    metadata = json.loads(Path(urlparse(lake.metadata).path).read_text())
    assert writer.table_uuid == metadata["table-uuid"]
    assert writer.format_version == metadata["format-version"]
    assert writer.base == metadata["current-snapshot-id"]
    assert writer.index_location == f"{lake.open().location()}/_key_index"
    # What is said of data files is the same as for a table with equality deletes.
    for name in ("schema", "delete_schema", "compression", "target_file_bytes", "metrics_modes", "shared_folder"):
        assert getattr(writer, name) == getattr(plain, name), name


def writer_of(lake: Lake) -> PositionFileWriter:
    writer = lake.open().file_writer()
    assert isinstance(writer, PositionFileWriter)
    return writer
