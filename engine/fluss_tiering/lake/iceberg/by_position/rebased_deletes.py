"""Deletes by position that are written anew, since somebody has rewritten data files after the base of the round.

A rewrite changes no rows. So each row that the round deletes is in the newer base, too, under the same key. The keys
are read from the data files of the older base, which a rewrite leaves where they are, and looked up in the newer ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
from pyarrow import fs

from fluss_tiering.lake.files import LakeFile, RebasedPlace
from fluss_tiering.lake.iceberg.by_position.data_file_keys import read_keys
from fluss_tiering.lake.iceberg.by_position.found_rows import FoundRows
from fluss_tiering.lake.iceberg.by_position.place_index import KEYS_AT_ONCE, PlaceIndex
from fluss_tiering.lake.iceberg.deletes import DeletePlace, present_deletes
from fluss_tiering.lake.iceberg.deletes.vector import DeletionVector
from fluss_tiering.lake.key_index import Hashes
from fluss_tiering.lake.object_store import naming_expired_credentials


def write_rebased_deletes(
    place: DeletePlace, index: PlaceIndex, found: FoundRows, rebased: RebasedPlace, base: int
) -> list[LakeFile]:
    """Write the deletes of a place for a newer base, and the state of its index.

    Args:
        place: Where the delete files are written.
        index: The index of the place in the newer base.
        found: Takes the rows that are found.
        rebased: The place, with the deletes for the older base.
        base: The id of the newer base.

    Raises:
        FlussTieringError: STORAGE if the lake refuses; CORRUPT_DATA if a file of it is missing or damaged.
        ExpiredCredentialsError: if the credentials are not valid any more.
    """
    key = place.writer.delete_schema
    assert key is not None  # noqa: S101 - a log table has no deletes
    there = {*(file.location for file in rebased.live), *rebased.added}
    moved: dict[str, DeletionVector] = {}
    with naming_expired_credentials(place.io_properties):
        for location, positions in _deleted_rows(place, rebased).items():
            if location in there:
                found.add_positions(location, positions)
            elif len(positions):
                moved[location] = positions
        for hashes in _at_once(_keys(place.open(), index, moved, key)):
            for matches in index.find(hashes):
                found.add(matches)
        index.keep(rebased.added)
        index.save(base)
        # Nothing can fail after this: nobody else would know the files, so as to delete them.
        return found.write()


def _deleted_rows(place: DeletePlace, rebased: RebasedPlace) -> dict[str, DeletionVector]:
    """Return the rows that the round itself deletes, by their data files.

    Its delete files also hold what was deleted before. Of such keys, newer rows may live elsewhere.
    """
    written: dict[str, list[LakeFile]] = defaultdict(list)
    for file in rebased.deletes:
        for location in file.referenced:
            written[location].append(file)
    deleted = {location: each.everything() for location, each in present_deletes(place, written).items()}
    before = present_deletes(place, {file.location: file.deletes for file in rebased.before})
    for location, present in before.items():
        deleted[location].remove(present.everything())
    return deleted


def _keys(
    lake: fs.FileSystem, index: PlaceIndex, rows: Mapping[str, DeletionVector], key: pa.Schema
) -> Iterator[Hashes]:
    """Yield the keys of rows of data files, in parts."""
    for location, vector in rows.items():
        positions, first = vector.positions(), 0
        for columns in read_keys(lake, location, key):
            behind = first + len(columns[0])
            low, high = np.searchsorted(positions, [first, behind])
            if low < high:
                taken = pa.array(positions[low:high] - first)
                yield index.hashes([column.take(taken) for column in columns])
            first = behind


def _at_once(parts: Iterator[Hashes]) -> Iterator[Hashes]:
    gathered: list[Hashes] = []
    for part in parts:
        gathered.append(part)
        if sum(map(len, gathered)) >= KEYS_AT_ONCE:
            yield Hashes.concat(gathered)
            gathered = []
    if gathered:
        yield Hashes.concat(gathered)
