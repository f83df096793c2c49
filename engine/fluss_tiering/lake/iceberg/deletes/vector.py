"""A deletion vector: the positions of deleted rows of one data file as a bitmap, and the blob that holds it.

The blob is a `deletion-vector-v1` of the Iceberg spec: its length, a magic number, the bitmap and a checksum. The
bitmap has 64 bits, in the portable form of Roaring: 32-bit bitmaps by the upper halves of the positions.
"""

from __future__ import annotations

import array
import struct
import zlib
from collections.abc import Iterable
from typing import Final

import numpy as np
from pyroaring import BitMap64

from fluss_tiering.lake.protocol import Int64s

BLOB_TYPE: Final = "deletion-vector-v1"
_MAGIC: Final = b"\xd1\xd3\x39\x64"
_LENGTH: Final = struct.Struct(">I")
_CHECKSUM: Final = struct.Struct(">I")
_AROUND: Final = _LENGTH.size + _CHECKSUM.size
"""The size of what is around the magic number and the bitmap, which the length and the checksum are of."""


class DeletionVector:
    """A set of positions, each from 0 to 2^63 - 1."""

    def __init__(self) -> None:
        self._bitmap = BitMap64()

    def __len__(self) -> int:
        return len(self._bitmap)

    def add(self, positions: Int64s) -> None:
        """Add positions, in any order.

        Raises:
            ValueError: A position is negative.
        """
        if len(positions) and int(positions.min()) < 0:
            raise ValueError(f"the position {positions.min()} is negative")
        # The library takes the buffer of an array five times as fast as that of numpy.
        self._bitmap |= BitMap64(array.array("Q", np.ascontiguousarray(positions).astype(np.uint64).tobytes()))

    def update(self, other: DeletionVector) -> None:
        """Add all positions of another vector."""
        self._bitmap |= other._bitmap

    def remove(self, other: DeletionVector) -> None:
        """Remove all positions of another vector."""
        self._bitmap -= other._bitmap

    def positions(self) -> Int64s:
        """Return the positions in ascending order. They take 8 bytes each."""
        return np.asarray(self._bitmap.to_array()).astype(np.int64)

    def to_blob(self) -> bytes:
        """Return the vector as a blob."""
        self._bitmap.run_optimize()
        content = _MAGIC + self._bitmap.serialize()
        return _LENGTH.pack(len(content)) + content + _CHECKSUM.pack(zlib.crc32(content))

    @classmethod
    def from_blob(cls, blob: bytes) -> DeletionVector:
        """Return the vector in a blob.

        Raises:
            ValueError: The blob is damaged. The text says what is wrong with it.
        """
        if len(blob) < _AROUND + len(_MAGIC):
            raise ValueError(f"its deletion vector has {len(blob)} bytes, which is too short")
        content = blob[_LENGTH.size : -_CHECKSUM.size]
        (length,), (checksum,) = _LENGTH.unpack(blob[: _LENGTH.size]), _CHECKSUM.unpack(blob[-_CHECKSUM.size :])
        if length != len(content):
            raise ValueError(f"its deletion vector says that it has {length} bytes, and has {len(content)}")
        if not content.startswith(_MAGIC):
            raise ValueError(f"its deletion vector begins with {content[:4].hex()}, expected {_MAGIC.hex()}")
        if zlib.crc32(content) != checksum:
            raise ValueError(
                f"the checksum of its deletion vector is {zlib.crc32(content):08x}, expected {checksum:08x}"
            )
        vector = cls()
        try:
            vector._bitmap = BitMap64.deserialize(content[len(_MAGIC) :])
        except (ValueError, IndexError) as error:
            raise ValueError(f"its deletion vector holds no bitmap ({error})") from None
        return vector


def union_of(vectors: Iterable[DeletionVector]) -> DeletionVector:
    """Return a new vector with the positions of all of these."""
    union = DeletionVector()
    for each in vectors:
        union.update(each)
    return union
