"""Where delete files are written: the partitions of their data files, and a folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pyarrow import fs

from fluss_tiering.lake.files import RowPartition
from fluss_tiering.lake.iceberg.parquet import ParquetFileWriter
from fluss_tiering.lake.object_store import filesystem_of, path_of, require_valid
from fluss_tiering.lake.shared_folder import require_shared


@dataclass(frozen=True, slots=True)
class DeletePlace:
    """The place of the delete files that one task writes for one bucket of one partition. It can be pickled.

    Deletes are written to a place once, since the names of the files only depend on it.

    Attributes:
        writer: The table's writer of files, as `LakeTable.file_writer` returns it. It knows the compression and how the
            store is opened.
        location: The beginning of the files' locations, as `LakeTable.piece_location` returns it.
        attempt: The number of the task attempt, which becomes a part of the names.
        partition_values: The value of each partition key of the table.
        partitions: The partition spec and the partition of each data file, if they follow from the rows: no spec for
            that with which the round writes. Empty if the bucket and the partition values are the partition.
    """

    writer: ParquetFileWriter
    bucket: int
    location: str
    attempt: int
    partition_values: tuple[str, ...] = ()
    partitions: Mapping[str, tuple[int | None, RowPartition]] = field(default_factory=dict, repr=False)

    @property
    def io_properties(self) -> Mapping[str, str]:
        """The properties with which the store is opened. They are secrets."""
        return self.writer.io_properties

    @property
    def prefix(self) -> str:
        """The beginning of the location of each delete file."""
        return f"{self.location}-{self.attempt}-positions"

    def partition_of(self, data_file: str) -> tuple[int | None, RowPartition | None]:
        """Return the partition spec and the partition of a data file, which are also those of its delete files."""
        return self.partitions.get(data_file, (None, None))

    def by_partition(self, data_files: Iterable[str]) -> list[list[str]]:
        """Return the data files of each partition."""
        found: dict[tuple[int | None, RowPartition | None], list[str]] = {}
        for data_file in data_files:
            found.setdefault(self.partition_of(data_file), []).append(data_file)
        return list(found.values())

    def open(self) -> fs.FileSystem:
        """Return the file system of the place, in which its folder exists.

        Raises:
            FlussTieringError: STORAGE if this executor does not see the folder of the lake.
            ExpiredCredentialsError: if the credentials are not valid any more.
        """
        require_shared(self.writer.shared_folder)
        require_valid(self.io_properties)
        filesystem = filesystem_of(self.location, self.io_properties)
        if isinstance(filesystem, fs.LocalFileSystem):
            filesystem.create_dir(path_of(self.location).rpartition("/")[0], recursive=True)
        return filesystem
