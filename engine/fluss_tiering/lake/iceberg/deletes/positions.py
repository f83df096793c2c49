"""Positions of deleted rows, as the caller has them and as delete files want them: sorted, and by data file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fluss_tiering.formats.micros import column_of
from fluss_tiering.lake.iceberg.deletes.vector import DeletionVector
from fluss_tiering.lake.protocol import Int64s


@dataclass(frozen=True)
class PositionDeletes:
    """Rows of data files that are to be deleted, in any order. A row may occur more than once.

    Attributes:
        locations: The locations of data files, each exactly as the lake table's metadata has it, and each once.
        files: For each row, the number of its data file: an index into `locations`. Integers without nulls.
        positions: For each row, its position in the data file, from 0. Integers without nulls, as many as `files`.
        bitmaps: A bitmap for each data file instead, which takes a fraction of the memory; None for the rows above.
    """

    locations: Sequence[str]
    files: pa.Array | pa.ChunkedArray
    positions: pa.Array | pa.ChunkedArray
    bitmaps: Mapping[str, DeletionVector] | None = None

    @classmethod
    def of(cls, vectors: Mapping[str, DeletionVector]) -> Self:
        """Return the deletes of a bitmap for each data file."""
        none = column_of(pa.int64(), np.empty(0, np.int64))
        return cls(tuple(vectors), none, none, vectors)

    @cached_property
    def vectors(self) -> dict[str, DeletionVector]:
        """The bitmap of each data file that has deletes, in the order of locations.

        The order is that of the UTF-8 bytes of the locations, as the spec of position deletes wants it.
        """
        bitmaps = dict(self._bitmaps()) if self.bitmaps is None else self.bitmaps
        return {location: bitmaps[location] for location in self._ordered if len(bitmaps[location])}

    def _bitmaps(self) -> Iterator[tuple[str, DeletionVector]]:
        starts, positions = self._sorted
        for rank, location in enumerate(self._ordered):
            vector = DeletionVector()
            vector.add(positions[starts[rank] : starts[rank + 1]])
            yield location, vector

    @cached_property
    def _ordered(self) -> list[str]:
        ordered = sorted(self.locations, key=str.encode)
        if len(set(ordered)) < len(ordered):
            twice = next(one for one, other in pairwise(ordered) if one == other)
            raise ValueError(f"the data file {twice} is named twice: expected each location once")
        return ordered

    @cached_property
    def _sorted(self) -> tuple[Int64s, Int64s]:
        """The positions in the order of their data files, and where each file's positions begin."""
        files, positions = _numbers(self.files, "file number"), _numbers(self.positions, "position")
        if len(files) != len(positions):
            raise ValueError(f"{len(files)} file numbers and {len(positions)} positions: expected as many")
        if len(files) and int(files.max()) >= len(self.locations):
            raise ValueError(f"the file number {files.max()} is too large: there are {len(self.locations)} locations")
        ranks = np.empty(len(self.locations), np.int64)
        place = {location: number for number, location in enumerate(self.locations)}
        ranks[[place[location] for location in self._ordered]] = np.arange(len(self.locations))
        ranked = ranks[files]
        order = np.argsort(ranked, kind="stable")
        starts = np.searchsorted(ranked[order], np.arange(len(self.locations) + 1))
        return starts, positions[order]


def _numbers(values: pa.Array | pa.ChunkedArray, name: str) -> npt.NDArray[np.int64]:
    if values.null_count:
        raise ValueError(f"a {name} is null: expected none")
    numbers = np.asarray(values.cast(pa.int64()))
    if len(numbers) and int(numbers.min()) < 0:
        raise ValueError(f"the {name} {numbers.min()} is negative: expected a number from 0 on")
    return numbers
