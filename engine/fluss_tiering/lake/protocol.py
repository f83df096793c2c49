"""What a tiering round needs from a lake: our commits in a table's history, files from executors, an atomic commit.

A `LakeCatalog` lives on the driver and opens `LakeTable`s. A `LakeFileWriter` is made on the driver, is pickled, and
writes files on executors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_tiering.lake.files import LakeFile, LakePlace, LiveDataFile, NotedPlace, RebasedPlace
from fluss_tiering.model.table import TableBucket, TableInfo

if TYPE_CHECKING:
    from fluss_tiering.lake.key_index import PieceKeys

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LakeTableSize:
    """The size of a lake table, as its metadata says; None if the metadata does not say it.

    Attributes:
        file_bytes: The size of all files.
        records: The number of records in data files, including those that delete files remove.
    """

    file_bytes: int | None = None
    records: int | None = None


@dataclass(frozen=True, slots=True)
class LakeCommit:
    """The description of one of our commits, in the summary of the lake snapshot.

    Attributes:
        tiering_epoch: The tiering epoch of the round.
        commit_id: The UUID of this attempt to commit. Whoever resolves an unknown outcome looks for it.
        offsets_path: The path of the storage's file with the same offsets (`fluss-offsets`).
        log_end_offsets: The end offset, exclusive, of every bucket that has rows in the lake.
        lake_offsets: The location of a file in the lake with the same offsets, if they are too long for a summary.
    """

    table_id: int
    tiering_epoch: int
    commit_id: str
    offsets_path: str
    log_end_offsets: Mapping[TableBucket, int]
    lake_offsets: str | None = None


@dataclass(frozen=True, slots=True)
class ForeignCommit:
    """A commit of another tiering service of Fluss, which names its offsets in a file only.

    Attributes:
        offsets_path: The path of the storage's file with the offsets (`fluss-offsets`).
    """

    offsets_path: str


ReadOffsets = Callable[[str], Mapping[TableBucket, int]]
"""Reads an offsets file of the storage: the offset, exclusive, up to which each bucket is in the lake."""


@dataclass(frozen=True, slots=True)
class CommittedSnapshot:
    """A lake snapshot that one of our commits made."""

    snapshot_id: int
    commit: LakeCommit


class PieceWriter(Protocol):
    """Writes the rows of one piece of one bucket. Only one thread uses it."""

    def write(self, rows: pa.RecordBatch, offsets: Int64s, timestamps_ms: Int64s) -> None:
        """Add rows of the table's Arrow schema, with the log offset and the commit timestamp of each row."""
        ...

    def delete(self, keys: pa.RecordBatch) -> None:
        """Delete the rows with these keys in earlier snapshots, but not those of this commit."""
        ...

    def close(self) -> Sequence[LakeFile]:
        """Finish the files and return them; a piece without rows has none."""
        ...

    def abort(self) -> None:
        """Delete what was written."""
        ...


class NotingPieceWriter(PieceWriter, Protocol):
    """A piece writer that only notes the keys whose rows are deleted."""

    def keys(self) -> PieceKeys:
        """Return where the keys are noted, after `close`."""
        ...


class LakeFileWriter(Protocol):
    """Writes files on an executor. It is pickled together with the task."""

    def open_piece(
        self,
        bucket: int,
        location: str,
        attempt: int,
        partition_values: tuple[str, ...] = (),
        live: Sequence[LiveDataFile] | None = None,
    ) -> PieceWriter:
        """Return a writer. The names of its files begin with `location` and contain the task attempt.

        Args:
            location: The beginning of the files' locations.
            attempt: The number of the task attempt.
            partition_values: The value of each partition key of the table.
            live: The data files of the place, if the writer deletes by position; None if it deletes by key.

        Raises:
            ExpiredCredentialsError: if the credentials for the lake's store are not valid any more. The writer's own
                methods raise it, too.
        """
        ...

    def open_noting_piece(
        self, bucket: int, location: str, attempt: int, partition_values: tuple[str, ...] = ()
    ) -> NotingPieceWriter:
        """Return a writer of a piece of a place that has several: see `open_piece` and `write_deletes`.

        Other tasks write rows at the same time that this piece deletes.
        """
        ...

    def write_deletes(self, place: NotedPlace, attempt: int) -> Sequence[LakeFile]:
        """Write the deletes by position of all pieces of a place whose keys were noted.

        Args:
            place: The place and its pieces.
            attempt: The number of the task attempt.

        Raises:
            FlussTieringError: STORAGE if the lake cannot be read or written; CORRUPT_DATA if a file of it is damaged.
            ExpiredCredentialsError: if the credentials for the lake's store are not valid any more.
        """
        ...

    def rebase_deletes(self, place: RebasedPlace, attempt: int) -> Sequence[LakeFile]:
        """Write deletes by position anew, of the same rows, which are in other data files of the newer base.

        Args:
            place: The place and its deletes.
            attempt: The number of the task attempt.

        Raises:
            FlussTieringError: STORAGE if the lake cannot be read or written; CORRUPT_DATA if a file of it is damaged,
                or a data file of the older base is missing.
            ExpiredCredentialsError: if the credentials for the lake's store are not valid any more.
        """
        ...


class LakeTable(Protocol):
    """A lake table as it was when it was opened, and commits on top of this state."""

    def base(self) -> int | None:
        """Return the id of the snapshot that was current when the table was opened; None if there was none."""
        ...

    def only_rewritten_since(self, snapshot_id: int) -> bool:
        """Return whether the base has the same rows as an earlier snapshot, whose files were only rewritten since.

        It is False if the base is that snapshot itself.

        Raises:
            FlussTieringError: STORAGE if the lake cannot be read.
        """
        ...

    @property
    def commits_to_main(self) -> bool:
        """Whether rounds commit to the main branch, which readers see."""
        ...

    def unregistered_commit(
        self, known: int | None, read_offsets: ReadOffsets | None = None, *, published: bool = False
    ) -> CommittedSnapshot | None:
        """Return the newest commit of tiering in the base's history that is newer than what the storage knows.

        Args:
            known: The snapshot that the storage knows; None if it knows none.
            read_offsets: Reads the offsets of a commit of another tiering service. Without it there may be none.
            published: Whether only commits count that are in main, if rounds commit to another branch.

        Raises:
            FlussTieringError: LAKE_TABLE_MISMATCH if the histories of the lake and of the storage do not match, or if
                there is a commit of another tiering service whose offsets cannot be read.
        """
        ...

    def partitions_with_rows(self, places: Mapping[tuple[str, ...], Collection[int]]) -> Collection[tuple[str, ...]]:
        """Return the partitions that may have rows in one of the named buckets, as of the base.

        Args:
            places: The values of a partition -> the numbers of the buckets to look at.

        Raises:
            FlussTieringError: STORAGE if the lake cannot be read.
        """
        ...

    def place(self, bucket: int, partition_values: tuple[str, ...]) -> LakePlace:
        """Return the place of the rows of a bucket of a partition."""
        ...

    def live_files(self, places: Collection[LakePlace]) -> Mapping[LakePlace, Sequence[LiveDataFile]]:
        """Return the data files that the base has of some places, if rows of the table are deleted by position.

        Returns:
            The data files of each place, none for a place without rows. No place is in it if rows of the table are
            deleted by key.

        Raises:
            FlussTieringError: STORAGE if the lake cannot be read.
        """
        ...

    def file_writer(self, *, renew: bool = False) -> LakeFileWriter:
        """Return the writer with which executors write this table's files.

        Args:
            renew: Whether the store refused the credentials of the last writer, so that new ones are asked for. If
                there are none, the writer is equal to the last one.
        """
        ...

    def piece_location(self, bucket: int, name: str, partition_values: Sequence[str] = ()) -> str:
        """Return the location of a piece's files: the prefix of their names."""
        ...

    def commit(
        self,
        pieces: Sequence[Sequence[LakeFile]],
        commit: LakeCommit,
        partition_values: tuple[str, ...] = (),
        removed: Sequence[tuple[int, tuple[str, ...]]] = (),
        *,
        keep: bool = False,
    ) -> int:
        """Make all files visible at once, and return the id of the lake snapshot.

        Args:
            pieces: The files in order: the deletes of one piece apply to the rows of the pieces before it.
            commit: The description of the commit.
            partition_values: The values of a partition whose offsets move, for a commit without files.
            removed: Buckets, each with the values of its partition, of which everything that the base holds is
                removed.
            keep: Whether the files of a conflict are kept, so that the caller deletes them, or commits them on top of a
                newer base.

        Raises:
            FlussTieringError: LAKE_CONFLICT if somebody else has changed rows since the base, or has rewritten data
                files whose rows are deleted by position, and the files are deleted unless they are to be kept; STORAGE
                if the lake failed, and the files are kept unless it is certain that the commit did not happen.
        """
        ...

    def size(self, snapshot_id: int) -> LakeTableSize:
        """Return the size of the table as of a snapshot that `commit` returned."""
        ...

    def packed(self, files: Sequence[LakeFile]) -> tuple[LakeFile, ...]:
        """Return the files without their metrics, which they hold in a form that takes less memory, for `commit`."""
        ...

    def delete_files(self, files: Sequence[LakeFile]) -> None:
        """Delete files that no commit was tried with, as far as possible."""
        ...


class LakeCatalog(Protocol):
    """Opens lake tables."""

    def find_table(self, table: TableInfo, *, follow: bool = False) -> LakeTable | None:
        """Return the lake table of a table; None if there is none.

        Args:
            follow: Whether the columns of the lake table are changed first as those of the table were. Without it, the
                lake table may be that of an older schema of the table.

        Raises:
            FlussTieringError: LAKE_TABLE_MISMATCH if a lake table with another layout exists; STORAGE if the lake
                cannot be reached.
        """
        ...

    def open_table(self, table: TableInfo) -> LakeTable:
        """Create the lake table of a table with Fluss's layout, and return it; the one that is there if there is one.

        Raises:
            FlussTieringError: LAKE_TABLE_MISMATCH if a lake table with another layout exists; STORAGE if the lake
                cannot be reached.
        """
        ...
