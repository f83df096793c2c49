"""Places of delete files in a local folder, for tests without a lake table."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from fluss_tiering.lake.files import FileContent, LakeFile
from fluss_tiering.lake.iceberg.deletes import DeletePlace, PositionDeletes
from fluss_tiering.lake.iceberg.deletes.schema import PATH_COLUMN, PATH_ID, POSITION_ID, SCHEMA
from fluss_tiering.lake.iceberg.metrics.modes import FULL
from fluss_tiering.lake.iceberg.parquet import OpenFile, ParquetFileWriter

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


def shared_delete_file(place: DeletePlace, gone: Mapping[str, Sequence[int]]) -> LakeFile:
    """Write one position delete file for several data files, as other engines do."""
    rows = sorted((location.encode(), position) for location, positions in gone.items() for position in positions)
    columns = [[location.decode() for location, _ in rows], [position for _, position in rows]]
    settings = replace(place.writer, metrics_modes={PATH_ID: FULL, POSITION_ID: FULL})
    file = OpenFile(
        f"{place.prefix}-{uuid.uuid4()}.parquet", SCHEMA, settings, place.open(), dictionaries=[PATH_COLUMN]
    )
    file.write(pa.table(columns, schema=SCHEMA))
    size, metrics = file.close()
    return LakeFile(
        FileContent.POSITION_DELETES,
        place.bucket,
        file.location,
        size,
        metrics,
        place.partition_values,
        referenced=tuple(sorted(gone)),
    )
