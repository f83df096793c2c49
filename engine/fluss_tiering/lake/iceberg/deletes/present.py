"""What is deleted already: the positions in live position delete files and deletion vectors, read by executors."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from pyarrow import fs

from fluss_tiering.lake.damaged_parquet import MISSING, naming_damage, open_parquet, unreadable_file
from fluss_tiering.lake.files import LakeFile
from fluss_tiering.lake.iceberg.deletes.place import DeletePlace
from fluss_tiering.lake.iceberg.deletes.puffin import read_vector
from fluss_tiering.lake.iceberg.deletes.schema import PATH_COLUMN, POSITION_COLUMN
from fluss_tiering.lake.iceberg.deletes.vector import DeletionVector, union_of
from fluss_tiering.lake.object_store import naming_expired_credentials, path_of
from fluss_tiering.lake.parallel import map_on_store
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

_BATCH_ROWS: Final = 1 << 16
_PARQUET: Final = ".parquet"


@dataclass(slots=True)
class PresentDeletes:
    """What is deleted of one data file already.

    Attributes:
        own: The delete files that are about this data file alone, and the positions in each. A new delete file with
            the same positions can replace them.
        shared: The positions in delete files that are about other data files, too.
        shared_files: The delete files of `shared`.
    """

    own: list[tuple[LakeFile, DeletionVector]] = field(default_factory=list)
    shared: DeletionVector = field(default_factory=DeletionVector)
    shared_files: tuple[LakeFile, ...] = ()

    @property
    def files(self) -> tuple[LakeFile, ...]:
        """The delete files of `own`."""
        return tuple(file for file, _ in self.own)

    def everything(self) -> DeletionVector:
        """Return all positions."""
        return union_of([self.shared, *(positions for _, positions in self.own)])


def present_deletes(place: DeletePlace, live: Mapping[str, Sequence[LakeFile]]) -> dict[str, PresentDeletes]:
    """Read what live delete files delete of data files.

    A delete file that several data files have is read once. Memory is that of the bitmaps, which take a few bytes a
    position at most, and two if many rows of a data file are deleted.

    Args:
        place: The place of the data files; only its store is used.
        live: The location of each data file -> its live delete files, as `live_data_files` returns them; none for a
            data file without deletes.

    Returns:
        What is deleted of each data file of `live`.

    Raises:
        FlussTieringError: CORRUPT_DATA if a delete file is missing or damaged; LAKE_TABLE_MISMATCH if it has a format
            that executors do not read; STORAGE if this executor does not see the folder of the lake.
        ExpiredCredentialsError: if the credentials for the lake's store are not valid any more.
    """
    present = {location: PresentDeletes() for location in live}
    wanted: dict[str, dict[int, tuple[LakeFile, list[str]]]] = {}
    for location, files in live.items():
        for file in files:
            offset = file.vector.offset if file.vector else 0
            wanted.setdefault(file.location, {}).setdefault(offset, (file, []))[1].append(location)
    if not wanted:
        return present
    filesystem = place.open()

    def read(parts: Collection[tuple[LakeFile, list[str]]]) -> list[_Found]:
        (first, locations), *_ = parts
        if first.vector is None:
            with naming_damage(filesystem, first.location, lambda what: _unreadable(first, what)):
                return _of_position_file(filesystem, first, locations)
        try:
            return _of_vectors(filesystem, [(file, location) for file, (location, *_) in parts])
        except FileNotFoundError:
            raise _unreadable(first, MISSING) from None
        except ValueError as error:
            raise _unreadable(first, f"is damaged: {error}") from None

    with naming_expired_credentials(place.io_properties):
        for found in map_on_store(place.location, read, [list(parts.values()) for parts in wanted.values()]):
            for location, file, deleted in found:
                _add(present[location], file, deleted)
    return present


_Found: TypeAlias = tuple[str, LakeFile, DeletionVector]
"""The location of a data file, and what a delete file deletes of it."""


def is_shared(file: LakeFile) -> bool:
    """Return whether a live delete file by position may be about several data files."""
    return len(file.referenced) != 1


def _add(present: PresentDeletes, file: LakeFile, deleted: DeletionVector) -> None:
    if is_shared(file):
        present.shared.update(deleted)
        present.shared_files += (file,)
    else:
        present.own.append((file, deleted))


def _of_vectors(filesystem: fs.FileSystem, parts: Sequence[tuple[LakeFile, str]]) -> list[_Found]:
    """Return the vectors of one Puffin file."""
    found = []
    with filesystem.open_input_file(path_of(parts[0][0].location)) as source:
        for file, location in parts:
            assert file.vector is not None  # noqa: S101 - the caller has looked
            found.append((location, file, read_vector(source, file.vector, file.metrics.record_count)))
    return found


def can_be_read(file: LakeFile) -> bool:
    """Return whether executors can read a live delete file. Other writers may write Avro and ORC files, too."""
    return file.vector is not None or file.location.endswith(_PARQUET)


def _of_position_file(filesystem: fs.FileSystem, file: LakeFile, locations: Iterable[str]) -> list[_Found]:
    """Return what a position delete file deletes of these data files."""
    if not can_be_read(file):
        raise FlussTieringError(
            ErrorCode.LAKE_TABLE_MISMATCH,
            f"the position delete file {file.location} is no Parquet file, and executors read no other: expected "
            "Parquet; compact the lake table, and set its property write.delete.format.default to parquet",
        )
    found = {location: DeletionVector() for location in locations}
    # All rows of such a file have this path: that is how Iceberg knows that the file is about it alone.
    alone = None if is_shared(file) else found.get(file.referenced[0])
    columns = [POSITION_COLUMN] if alone is not None else [PATH_COLUMN, POSITION_COLUMN]
    with (
        filesystem.open_input_file(path_of(file.location)) as source,
        open_parquet(source, read_dictionary=[PATH_COLUMN]) as parquet,
    ):
        for batch in parquet.iter_batches(_BATCH_ROWS, columns=columns):
            if alone is not None:
                alone.add(batch.column(POSITION_COLUMN).to_numpy(zero_copy_only=False))
                continue
            for location, positions in _runs(batch):
                if location in found:
                    found[location].add(positions)
    return [(location, file, deleted) for location, deleted in found.items()]


def _runs(batch: pa.RecordBatch) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the positions of each run of rows of one data file. In a sorted file, a data file has one run."""
    paths = batch.column(PATH_COLUMN)
    if not pa.types.is_dictionary(paths.type):
        paths = paths.dictionary_encode()
    codes = paths.indices.to_numpy(zero_copy_only=False)
    positions = batch.column(POSITION_COLUMN).to_numpy(zero_copy_only=False)
    ends = [*(np.flatnonzero(np.diff(codes)) + 1), len(codes)]
    start = 0
    for end in ends:
        if start < end:
            yield paths.dictionary[int(codes[start])].as_py(), positions[start:end]
        start = end


def _unreadable(file: LakeFile, what: str) -> FlussTieringError:
    return unreadable_file(file.location, what, "position delete file", "Parquet" if file.vector is None else "Puffin")
