"""Position delete files and deletion vectors of a lake that was moved: they name data files by their paths.

Each file is replaced in one step. What it deletes does not change, and what already names the new paths stays as it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fluss_tiering.lake.damaged_parquet import DAMAGE, open_parquet
from fluss_tiering.lake.delete_formats import PATH_COLUMN, PUFFIN_MAGIC, REFERENCED_DATA_FILE
from fluss_tiering.lake.metadata_files import avro_content, read_avro
from fluss_tiering.lake.puffin_footer import CompressedFooterError, described, description_of
from fluss_tiering.model.errors import ErrorCode, FlussTieringError


def move_paths(file: Path, moved: Callable[[str], str], replace: Callable[[Path, bytes], None]) -> int:
    """Let a file of position deletes name the new paths, and return its size.

    Args:
        file: A Parquet or Avro file with position deletes, or a Puffin file with deletion vectors.
        moved: Returns the new path of a data file, and any other text as it is.
        replace: Replaces the content of a file in one step.

    Raises:
        FlussTieringError: CORRUPT_DATA if the file is damaged; INVALID_REQUEST if it has another format.
    """
    content = file.read_bytes()
    try:
        if content.startswith(PUFFIN_MAGIC):
            after = _moved_puffin(file, content, moved)
        elif file.suffix == ".parquet":
            after = _moved_parquet(content, moved)
        elif file.suffix == ".avro":
            after = _moved_avro(file, content, moved)
        else:
            raise _unknown(file, "is neither a Parquet file nor an Avro file nor a Puffin file")
    except DAMAGE as error:
        raise FlussTieringError(
            ErrorCode.CORRUPT_DATA, f"the delete file {file} cannot be read: {error}; restore it from a backup"
        ) from error
    if after is not None:
        replace(file, after)
    return len(content if after is None else after)


def _moved_parquet(content: bytes, moved: Callable[[str], str]) -> bytes | None:
    """Return the new content; None if nothing changes."""
    with open_parquet(pa.BufferReader(content), read_dictionary=[PATH_COLUMN]) as source:
        schema = source.schema_arrow
        position = schema.get_field_index(PATH_COLUMN)
        schema = schema.set(position, schema.field(position).with_type(pa.string()))
        sink = pa.BufferOutputStream()
        changes = False
        with pq.ParquetWriter(
            sink,
            schema,
            compression=_codec(source.metadata),
            use_dictionary=[PATH_COLUMN],
            store_schema=False,
            write_page_checksum=True,
        ) as writer:
            for number in range(source.num_row_groups):
                rows = source.read_row_group(number).combine_chunks()
                paths = rows.column(position).combine_chunks()
                before = paths.dictionary.to_pylist()
                after = [moved(path) for path in before]
                changes = changes or after != before
                column = pc.take(pa.array(after, pa.string()), paths.indices)
                writer.write_table(rows.set_column(position, schema.field(position), column), rows.num_rows)
    return sink.getvalue().to_pybytes() if changes else None


def _moved_avro(file: Path, content: bytes, moved: Callable[[str], str]) -> bytes | None:
    """Return the new content; None if nothing changes."""
    reader, records = read_avro(file, content)
    after = [{**record, PATH_COLUMN: moved(record[PATH_COLUMN])} for record in records]
    return None if after == records else avro_content(reader, after)


def _codec(metadata: pq.FileMetaData) -> str:
    if not metadata.num_row_groups:
        return "zstd"
    codec = str(metadata.row_group(0).column(0).compression).lower()
    return "none" if codec == "uncompressed" else codec


def _moved_puffin(file: Path, content: bytes, moved: Callable[[str], str]) -> bytes | None:
    """Return the new content, in which each blob is where it was; None if nothing changes."""
    try:
        start, description = description_of(content)
    except CompressedFooterError:
        raise _unknown(file, "has a compressed footer") from None
    before = json.dumps(description)
    for blob in description["blobs"]:
        properties = blob.get("properties", {})
        if REFERENCED_DATA_FILE in properties:
            properties[REFERENCED_DATA_FILE] = moved(properties[REFERENCED_DATA_FILE])
    return None if json.dumps(description) == before else content[:start] + described(description)


def _unknown(file: Path, what: str) -> FlussTieringError:
    return FlussTieringError(
        ErrorCode.INVALID_REQUEST,
        f"the delete file {file} {what}, so that the paths in it cannot be changed: expected Parquet, Avro, or Puffin "
        "with a plain footer. Move the folder back to where it was. There, compact the table, tier new rows of it, and "
        "remove its older snapshots, which need the file, with `fluss-tiering expire TABLE --older-than 0s "
        "--retain-last 1`. Then move the folder again",
    )
