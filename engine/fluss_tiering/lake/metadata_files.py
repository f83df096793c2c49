"""Reads Iceberg's metadata files of a lake in a local folder, without a JVM."""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import fastavro

from fluss_tiering.model.errors import ErrorCode, FlussTieringError

SCHEME: Final = r"(?:file:(?://)?)?"
"""The pattern of what may stand before the path of a local file."""
_GZIP: Final = b"\x1f\x8b"
_MISSING_PACKAGE: Final = "you need to install"
"""What fastavro says of a codec for which it needs another package, for example `zstandard`."""
_DELETED: Final = 2
"""The status of a manifest's entry whose file the snapshot has no more (Iceberg's specification, Manifests)."""


def path_of(location: str) -> Path:
    """Return the path of a local file."""
    return Path(re.sub(rf"^{SCHEME}(?=/)", "", location))


def read_avro(file: Path, content: bytes | None = None) -> tuple[Any, list[dict[str, Any]]]:
    """Return the reader of an Avro file, which has its schema and its codec, and the records.

    Args:
        file: The file.
        content: Its content, if it has been read already.

    Raises:
        FlussTieringError: CORRUPT_DATA if the file cannot be read as Avro; INVALID_REQUEST if it is compressed in a way
            for which a Python package is missing.
    """
    try:
        with file.open("rb") if content is None else io.BytesIO(content) as opened:
            reader = fastavro.reader(opened)
            return reader, [dict(record) for record in reader if isinstance(record, dict)]
    except (ValueError, EOFError, KeyError) as error:
        if _MISSING_PACKAGE in str(error):
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST, f"{file} cannot be read: {error}; then run the command again"
            ) from None
        raise FlussTieringError(
            ErrorCode.CORRUPT_DATA, f"{file} cannot be read as Avro: {error}; restore it from a backup"
        ) from error


def avro_content(reader: Any, records: Iterable[Mapping[str, Any]]) -> bytes:  # noqa: ANN401 - of the library
    """Return the content of an Avro file like the one of a reader, with other records."""
    metadata = {key: value for key, value in reader.metadata.items() if not key.startswith("avro.")}
    content = io.BytesIO()
    fastavro.writer(content, reader.writer_schema, records, codec=reader.codec, metadata=metadata)
    return content.getvalue()


def read_json(file: Path) -> tuple[Any, bool]:
    """Return the content of a metadata file, and whether it is compressed.

    Raises:
        FlussTieringError: CORRUPT_DATA if the file cannot be read as JSON.
    """
    content = file.read_bytes()
    packed = content.startswith(_GZIP)
    try:
        return json.loads(gzip.decompress(content) if packed else content), packed
    except (ValueError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise FlussTieringError(
            ErrorCode.CORRUPT_DATA, f"{file} cannot be read as JSON: {error}; restore it from a backup"
        ) from error


def missing_files(metadata_location: str, moved: Callable[[str], str]) -> Iterator[Path]:
    """Yield the local files that the newest snapshot of a table needs and that are not there.

    Args:
        metadata_location: The location of the table's newest metadata file.
        moved: Returns where a file is now.

    Raises:
        FlussTieringError: CORRUPT_DATA if a file cannot be read.
    """

    def place_of(location: str) -> Path:
        return path_of(moved(location))

    file = place_of(metadata_location)
    if not file.is_file():
        yield file
        return
    metadata, _ = read_json(file)
    newest = metadata.get("current-snapshot-id")
    for snapshot in metadata.get("snapshots", ()):
        if snapshot["snapshot-id"] == newest and "manifest-list" in snapshot:
            yield from _missing_of_list(place_of(snapshot["manifest-list"]), place_of)


def _missing_of_list(manifest_list: Path, place_of: Callable[[str], Path]) -> Iterator[Path]:
    if not manifest_list.is_file():
        yield manifest_list
        return
    for listed in read_avro(manifest_list)[1]:
        manifest = place_of(listed["manifest_path"])
        if not manifest.is_file():
            yield manifest
            continue
        for entry in read_avro(manifest)[1]:
            location = entry["data_file"]["file_path"]
            file = place_of(location)
            # A file in an object store was not copied with the folder.
            if entry["status"] != _DELETED and file.is_absolute() and not file.is_file():
                yield file
