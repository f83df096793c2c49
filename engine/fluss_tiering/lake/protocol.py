"""What a tiering round needs of a lake: a table's history of our commits, files from executors, one atomic commit.

A `LakeCatalog` lives on the driver and hands out `LakeTable`s; a `LakeFileWriter` is made on the driver, travels to
executors by pickling and writes there. Errors are `FlussTieringError` with the code named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_tiering.model.table import TableBucket, TableInfo

Int64s = npt.NDArray[np.int64]


class FileContent(StrEnum):
    """What a file holds, in Iceberg's terms (FileContent of the table spec)."""

    DATA = "data"
    EQUALITY_DELETES = "equality-deletes"


@dataclass(frozen=True, slots=True)
class LakeFile:
    """A file that an executor has written and that no lake snapshot refers to yet.

    Attributes:
        bucket: whose rows it holds; with the partition values the lake's partition.
        footer: the Parquet footer, from which the driver takes counts and bounds.
        partition_values: one for each of the table's partition keys.
    """

    content: FileContent
    bucket: int
    location: str
    size_bytes: int
    footer: bytes
    partition_values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LakeTableSize:
    """All files of a lake table, as its metadata counts them; None where that does not tell.

    Attributes:
        records: of data files, also those that delete files take back.
    """

    file_bytes: int | None = None
    records: int | None = None


@dataclass(frozen=True, slots=True)
class LakeCommit:
    """What a commit of ours says about itself in the lake snapshot's summary.

    Attributes:
        commit_id: a UUID of this one attempt to commit; whoever settles an unknown outcome looks for it.
        offsets_path: where the storage keeps the same offsets in a file (`fluss-offsets`).
        log_end_offsets: of every bucket whose rows are in the lake, exclusive.
    """

    table_id: int
    tiering_epoch: int
    commit_id: str
    offsets_path: str
    log_end_offsets: Mapping[TableBucket, int]


@dataclass(frozen=True, slots=True)
class CommittedSnapshot:
    """A lake snapshot that a commit of ours made."""

    snapshot_id: int
    commit: LakeCommit


class PieceWriter(Protocol):
    """Writes the rows of one piece of one bucket; used by one thread."""

    def write(self, rows: pa.RecordBatch, offsets: Int64s, timestamps_ms: Int64s) -> None:
        """Adds rows of the table's Arrow schema with the log offset and the commit timestamp of each."""
        ...

    def delete(self, keys: pa.RecordBatch) -> None:
        """Deletes the rows of these keys as far as earlier snapshots hold them (never this commit's own)."""
        ...

    def close(self) -> Sequence[LakeFile]:
        """Finishes the files; none for a piece without rows."""
        ...

    def abort(self) -> None:
        """Deletes what was written."""
        ...


class LakeFileWriter(Protocol):
    """Opens piece writers on an executor; pickled with the task."""

    def open_piece(
        self, bucket: int, location: str, attempt: int, partition_values: tuple[str, ...] = ()
    ) -> PieceWriter:
        """A writer whose files begin with `location` and carry the task attempt in their names."""
        ...


class LakeTable(Protocol):
    """A table in the lake as it was when it was opened, and commits on top of that."""

    def base(self) -> int | None:
        """Id of the snapshot that was current when the table was opened; None for a table without any."""
        ...

    def unregistered_commit(self, known: int | None) -> CommittedSnapshot | None:
        """The newest commit of ours in the base that came after the snapshot `known` to the storage.

        Raises LAKE_TABLE_MISMATCH when the lake's history and the storage's do not belong together.
        """
        ...

    def file_writer(self) -> LakeFileWriter:
        """What executors write this table's files with."""
        ...

    def piece_location(self, bucket: int, name: str, partition_values: Sequence[str] = ()) -> str:
        """Where the files of a piece go: a prefix of their names."""
        ...

    def commit(
        self, pieces: Sequence[Sequence[LakeFile]], commit: LakeCommit, partition_values: tuple[str, ...] = ()
    ) -> int:
        """Makes all files visible at once and returns the id of the lake snapshot.

        `pieces` in order: the deletes of one apply to the rows of those before it. `partition_values` are of a
        partition whose offsets move, for a commit without files. Raises LAKE_CONFLICT when somebody
        else changed rows since the base (the files are deleted), STORAGE when the lake failed (the files are kept
        unless it is certain that the commit did not happen).
        """
        ...

    def size(self, snapshot_id: int) -> LakeTableSize:
        """How large the table is as of a snapshot that `commit` returned."""
        ...

    def delete_files(self, files: Sequence[LakeFile]) -> None:
        """Deletes files that no commit was tried with, as far as possible."""
        ...


class LakeCatalog(Protocol):
    """Opens lake tables."""

    def open_table(self, table: TableInfo) -> LakeTable:
        """The lake table of a table; made, with Fluss's layout, when there is none.

        Raises LAKE_TABLE_MISMATCH when one of another layout is there, STORAGE when the lake cannot be reached.
        """
        ...
