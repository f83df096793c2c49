"""The rows of a place that were found in the key index, and that are deleted by position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fluss_tiering.lake.files import ANY_BUCKET, LakeFile, LiveDataFile, RowPartition
from fluss_tiering.lake.iceberg.deletes import (
    FIRST_WITH_VECTORS,
    DeletePlace,
    PositionDeletes,
    is_shared,
    present_deletes,
    write_position_deletes,
    write_vectors,
)
from fluss_tiering.lake.iceberg.deletes.vector import DeletionVector
from fluss_tiering.lake.key_index import Matches


class FoundRows:
    """Collects rows of data files, and writes position deletes for them. Its memory is that of bitmaps.

    Args:
        format_version: The format version of the lake table, which decides the form of the deletes.
        place: Where the delete files are written.
        live: The data files that the base has of the place.
        added: The data files that this commit adds to the place, with their partitions.
    """

    def __init__(
        self,
        format_version: int,
        place: DeletePlace,
        live: Sequence[LiveDataFile],
        added: Mapping[str, RowPartition] | None = None,
    ) -> None:
        self._format_version = format_version
        if place.bucket == ANY_BUCKET:
            partitions = {location: (None, partition) for location, partition in (added or {}).items()}
            of_live = {file.location: (file.spec_id, file.partition) for file in live}
            place = replace(place, partitions={**partitions, **of_live})
        self._place = place
        self._live = {file.location: file for file in live}
        self._rows: dict[str, DeletionVector] = {}

    def add(self, matches: Matches) -> None:
        """Add rows of the live data files, or of files that this commit adds."""
        starts = np.searchsorted(matches.files, np.arange(len(matches.paths) + 1))
        for number, location in enumerate(matches.paths):
            first, behind = starts[number], starts[number + 1]
            if first < behind:
                self._rows.setdefault(location, DeletionVector()).add(matches.positions[first:behind])

    def add_positions(self, location: str, positions: DeletionVector) -> None:
        """Add rows of one live data file, or of a file that this commit adds."""
        self._rows.setdefault(location, DeletionVector()).update(positions)

    def write(self) -> list[LakeFile]:
        """Write the deletes of those rows that are not deleted yet, and return the files.

        Raises:
            FlussTieringError: CORRUPT_DATA if a live delete file cannot be read; STORAGE if the lake refuses.
            ExpiredCredentialsError: if the credentials are not valid any more.
        """
        present = present_deletes(self._place, {each: self._deletes_of(each) for each in self._concerned()})
        for location, vector in self._rows.items():
            vector.remove(present[location].everything())
        deletes = PositionDeletes.of({each: vector for each, vector in self._rows.items() if len(vector)})
        if self._format_version >= FIRST_WITH_VECTORS:
            return write_vectors(self._place, deletes, present)
        return write_position_deletes(self._place, deletes, present)

    def _concerned(self) -> list[str]:
        """Return the data files with new deletes, and those that share a delete file with one of them.

        Vectors leave shared delete files as they are.
        """
        if self._format_version >= FIRST_WITH_VECTORS:
            return list(self._rows)
        shared = {file.location for location in self._rows for file in self._deletes_of(location) if is_shared(file)}
        others = (
            location
            for location, live in self._live.items()
            if location not in self._rows and any(file.location in shared for file in live.deletes)
        )
        return [*self._rows, *others]

    def _deletes_of(self, location: str) -> Sequence[LakeFile]:
        return self._live[location].deletes if location in self._live else ()
