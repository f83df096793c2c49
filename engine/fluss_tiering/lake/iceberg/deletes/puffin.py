"""Puffin files: Iceberg's files of blobs, here of deletion vectors.

A file is a magic number, the blobs, and a footer: the magic number, a description of the blobs in JSON, its size, flags
and the magic number again.
"""

from __future__ import annotations

import json
import struct
from contextlib import suppress
from typing import Any, Final

from pyarrow import fs

from fluss_tiering.lake.delete_formats import PUFFIN_MAGIC, REFERENCED_DATA_FILE
from fluss_tiering.lake.iceberg.deletes.vector import BLOB_TYPE, DeletionVector
from fluss_tiering.lake.object_store import path_of
from fluss_tiering.lake.protocol import VectorPlace
from fluss_tiering.version import __version__

_NO_FLAGS: Final = bytes(4)
_SIZE: Final = struct.Struct("<i")
_POSITION_ID: Final = 2147483645
"""The id that the Iceberg spec reserves for the position of a row, `_pos`."""
_UNKNOWN: Final = -1
"""The spec wants this snapshot id and sequence number, since a vector is written before its snapshot."""


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
        self._sink.write(PUFFIN_MAGIC)

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
                "properties": {REFERENCED_DATA_FILE: data_file, "cardinality": str(len(vector))},
            }
        )
        return place

    def close(self) -> int:
        """Finish the file, and return its size in bytes."""
        footer = {"blobs": self._blobs, "properties": {"created-by": f"fluss-tiering {__version__}"}}
        described = json.dumps(footer, ensure_ascii=False).encode()
        self._sink.write(PUFFIN_MAGIC + described + _SIZE.pack(len(described)) + _NO_FLAGS + PUFFIN_MAGIC)
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
