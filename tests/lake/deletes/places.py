"""Places of delete files in a local folder, for tests without a lake table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from fluss_tiering.lake.iceberg.deletes import DeletePlace, PositionDeletes
from fluss_tiering.lake.iceberg.parquet import ParquetFileWriter

SETTINGS = ParquetFileWriter(pa.schema([]), None, ("zstd", None), 1 << 30, {})


def place_in(folder: Path, attempt: int = 0) -> DeletePlace:
    return DeletePlace(SETTINGS, 3, f"file://{folder}/day=mon/piece", attempt, ("mon",))


def deletes_of(gone: Mapping[str, Sequence[int]], *, others: Sequence[str] = ()) -> PositionDeletes:
    """Return deletes in no good order, beside data files without any."""
    locations = [*others, *gone]
    numbers = [locations.index(location) for location, positions in gone.items() for _ in positions]
    positions = [position for each in gone.values() for position in each]
    order = np.random.default_rng(len(positions)).permutation(len(positions))
    return PositionDeletes(
        locations,
        pa.array(np.asarray(numbers, np.int32)[order]),
        pa.array(np.asarray(positions, np.int64)[order]),
    )
