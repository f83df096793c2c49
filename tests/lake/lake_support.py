"""A lake table in a warehouse of its own, for tests that write files, commit them and ask judges for the rows."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import judges
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.lake.files import LakeFile
from fluss_tiering.lake.iceberg.catalog import IcebergCatalogs
from fluss_tiering.lake.iceberg.commit import IcebergCommitter
from fluss_tiering.lake.iceberg.java import jvm_of
from fluss_tiering.lake.iceberg.library import call, library
from fluss_tiering.lake.iceberg.table import IcebergTable
from fluss_tiering.lake.protocol import LakeCommit
from fluss_tiering.model.table import Column, DataType, TableBucket, TableDescriptor, TableInfo, TablePath

Row = Mapping[str, Any]
_NUMBERS = itertools.count(1)


def in_library(spark: Any, table: Any) -> Any:
    """Return a table of Iceberg as our Java library has it."""
    return call(library(jvm_of(spark)), "of", table)


def spark_table(spark: Any, name: str) -> Any:
    """Return a table that Spark has made, as our Java library has it."""
    return in_library(
        spark, spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)
    )


def run_after_staging(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Let `action` happen once, after the next transaction is built and before it is committed."""
    stage = IcebergCommitter._stage

    def staged(*args: Any) -> Any:
        monkeypatch.undo()
        transaction = stage(*args)
        action()
        return transaction

    monkeypatch.setattr(IcebergCommitter, "_stage", staged)


def columns_of(types: Mapping[str, str]) -> tuple[Column, ...]:
    return tuple(Column(name, DataType.parse(kind)) for name, kind in types.items())


@dataclass
class Lake:
    """A table with one bucket and its lake table.

    Attributes:
        spark: The session.
        folder: The folder of the warehouse.
        columns: The name and the Fluss type of each column.
        key: The key columns; none for a log table.
        properties: Iceberg's properties of the table.
    """

    spark: Any
    folder: Path
    columns: Mapping[str, str]
    key: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    name: str = field(default_factory=lambda: f"judged_{next(_NUMBERS)}")

    @property
    def table(self) -> TableInfo:
        options = {f"iceberg.{name}": value for name, value in self.properties.items()}
        descriptor = TableDescriptor(columns_of(self.columns), tuple(self.key), tuple(self.key), 1, options)
        catalog = {"name": self.name, "type": "hadoop", "warehouse": f"file://{self.folder}"}
        return TableInfo(1, TablePath("db", "t"), 1, descriptor, 0, catalog)

    def open(self) -> IcebergTable:
        return IcebergCatalogs(self.spark).find_table(self.table) or IcebergCatalogs(self.spark).open_table(self.table)

    def batch(self, rows: Iterable[Row]) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist(list(rows), schema=arrow_schema(columns_of(self.columns)))

    def write(
        self, lake: IcebergTable, batches: Sequence[pa.RecordBatch], deletes: Sequence[pa.RecordBatch] = ()
    ) -> Sequence[LakeFile]:
        """Write the files of one piece."""
        writer = lake.file_writer().open_piece(0, lake.piece_location(0, str(uuid.uuid4())), 0)
        for batch in deletes:
            writer.delete(batch.select(list(self.key)))
        for batch in batches:
            stamps = np.arange(batch.num_rows)
            writer.write(batch, stamps, stamps)
        return writer.close()

    def commit(self, *batches: pa.RecordBatch, upsert: bool = False, apart: bool = False) -> Sequence[LakeFile]:
        """Commit the rows as one round does, and return its files.

        Args:
            batches: The rows.
            upsert: Whether there is a delete of each key.
            apart: Whether each batch has files of its own.
        """
        lake = self.open()
        pieces = [[batch] for batch in batches] if apart else [batches]
        files = [file for piece in pieces for file in self.write(lake, piece, piece if upsert else ())]
        self.commit_files(lake, files)
        return files

    def commit_files(self, lake: IcebergTable, files: Sequence[LakeFile]) -> None:
        lake.commit([files], LakeCommit(1, 5, str(uuid.uuid4()), "/offsets", {TableBucket(1, 0): 1}))

    @property
    def metadata(self) -> str:
        return judges.newest_metadata(self.folder / "db" / "t")

    def values(self, judge: str, column: str, where: Any = (), *, push_down: bool = True) -> list[Any]:
        """Return the values of a column in the rows that a judge finds, sorted."""
        rows = judges.read(judge, self.metadata, where, columns=[column], push_down=push_down, spark=self.spark)
        return sorted(map(_text, rows.column(column).to_pylist()))


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value
