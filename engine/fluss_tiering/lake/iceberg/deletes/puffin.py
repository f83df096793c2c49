"""Puffin files: Iceberg's files of blobs, here of deletion vectors.

A file is a magic number, the blobs, and a footer: the magic number, a description of the blobs in JSON, its size, flags
and the magic number again.
"""

from __future__ import annotations

import json
import struct
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa
from pyarrow import fs

from fluss_tiering.lake.files import VectorPlace
from fluss_tiering.lake.iceberg.deletes.vector import BLOB_TYPE, DeletionVector
from fluss_tiering.lake.object_store import path_of
from fluss_tiering.version import __version__

_MAGIC: Final = b"PFA1"
_END: Final = struct.Struct("<i4s4s")
"""What a Puffin file ends with: the size of the description of its blobs, flags, and the magic number."""
_NO_FLAGS: Final = bytes(4)
_POSITION_ID: Final = 2147483645
"""The id that the Iceberg spec reserves for the position of a row, `_pos`."""
_UNKNOWN: Final = -1
"""The spec wants this snapshot id and sequence number, since a vector is written before its snapshot."""


def read_vector(source: pa.NativeFile, place: VectorPlace, positions: int) -> DeletionVector:
    """Read one deletion vector of a Puffin file.

    Args:
        source: The open file.
        place: Where the vector is in the file.
        positions: How many positions it must have.

    Raises:
        OSError: If its store fails.
        ValueError: The file or the vector is damaged. The text says what is wrong with it.
    """
    size, end = source.size(), place.offset + place.size_bytes
    if size < end:
        raise ValueError(f"it has {size} bytes, and its deletion vector would end at {end}")
    vector = DeletionVector.from_blob(source.read_at(place.size_bytes, place.offset))
    if len(vector) != positions:
        raise ValueError(
            f"its deletion vector has {len(vector)} positions, and the lake table's metadata says {positions}"
        )
    return vector


class PuffinWriter:
    """Writes deletion vectors into one Puffin file.

    Args:
        location: The location of the file, which must not be there.
        filesystem: The file system in which it is.
    """

    def __init__(self, location: str, filesystem: fs.FileSystem) -> None:
        self.location = location
        self._filesystem = filesystem
        self._blobs: list[dict[str, Any]] = []
        self._sink = filesystem.open_output_stream(path_of(location))
        self._sink.write(_MAGIC)

    def write(self, data_file: str, vector: DeletionVector) -> VectorPlace:
        """Add the vector of a data file, and return its place."""
        blob = vector.to_blob()
        place = VectorPlace(int(self._sink.tell()), len(blob))
        self._sink.write(blob)
        self._blobs.append(
            {
                "type": BLOB_TYPE,
                "fields": [_POSITION_ID],
                "snapshot-id": _UNKNOWN,
                "sequence-number": _UNKNOWN,
                "offset": place.offset,
                "length": place.size_bytes,
                "properties": {"referenced-data-file": data_file, "cardinality": str(len(vector))},
            }
        )
        return place

    def close(self) -> int:
        """Finish the file, and return its size in bytes."""
        description = {"blobs": self._blobs, "properties": {"created-by": f"fluss-tiering {__version__}"}}
        text = json.dumps(description, ensure_ascii=False).encode()
        self._sink.write(_MAGIC + text + _END.pack(len(text), _NO_FLAGS, _MAGIC))
        size = int(self._sink.tell())
        self._sink.close()
        return size

    def abort(self) -> None:
        """Delete the file, as far as possible."""
        # Whatever fails here, the failure that led here is the one to report.
        with suppress(Exception):
            self._sink.close()
        with suppress(Exception):
            self._filesystem.delete_file(path_of(self.location))
