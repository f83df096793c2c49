"""Reads the keys of a data file, whoever has written it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyarrow import fs

from fluss_tiering.lake.damaged_parquet import naming_damage, open_parquet, unreadable_file
from fluss_tiering.lake.iceberg.field_ids import id_of
from fluss_tiering.lake.object_store import path_of
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

_BATCH_ROWS: Final = 1 << 16


def read_keys(filesystem: fs.FileSystem, location: str, key: pa.Schema) -> Iterator[Sequence[pa.Array]]:
    """Yield the key columns of a data file in the order of its rows, batch by batch.

    Args:
        filesystem: The file system of the lake.
        key: The key columns with Iceberg's field ids. Names in the file may differ, since columns can be renamed.

    Raises:
        FlussTieringError: CORRUPT_DATA if the file is missing or damaged, lacks a key column, or has columns without
            field ids, which only Spark finds by the name mapping of the table.
    """
    with (
        naming_damage(filesystem, location, lambda what: unreadable_file(location, what)),
        filesystem.open_input_file(path_of(location)) as source,
        open_parquet(source) as parquet,
    ):
        names = _names(parquet.schema_arrow, key, location)
        for batch in parquet.iter_batches(_BATCH_ROWS, columns=names):
            yield [batch.column(name) for name in names]


def _names(found: pa.Schema, key: pa.Schema, location: str) -> list[str]:
    names = {id_of(field): field.name for field in found}
    lacking = [field.name for field in key if id_of(field) not in names]
    if lacking and None in names:
        raise FlussTieringError(
            ErrorCode.CORRUPT_DATA,
            f"the data file {location} has columns without Iceberg's field ids, so that the key columns "
            f"{', '.join(lacking)} are not found in it: expected the ids that Iceberg's writers put into each file. A "
            "file that was only added to the lake table lacks them. Write its rows into another file with "
            "`fluss-tiering compact TABLE --min-input-files 2`, or with Spark's procedure rewrite_data_files and its "
            "option rewrite-all, and the next round goes on",
        )
    if lacking:
        raise unreadable_file(location, f"lacks the key columns {', '.join(lacking)}")
    return [names[id_of(field)] for field in key]
