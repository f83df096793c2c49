"""The footer of a Puffin file, which describes its blobs."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any, Final

from fluss_tiering.lake.delete_formats import PUFFIN_MAGIC

_END: Final = struct.Struct("<i4s4s")
"""What a Puffin file ends with: the size of the description of its blobs, flags, and the magic number."""
_NO_FLAGS: Final = bytes(4)


class CompressedFooterError(ValueError):
    """The footer is compressed, which no writer of deletion vectors does."""


def described(description: Mapping[str, Any]) -> bytes:
    """Return the end of a Puffin file, from the description of its blobs on.

    Args:
        description: The description, as the Puffin spec names its parts.
    """
    text = json.dumps(description, ensure_ascii=False).encode()
    return text + _END.pack(len(text), _NO_FLAGS, PUFFIN_MAGIC)


def description_of(content: bytes) -> tuple[int, dict[str, Any]]:
    """Return where the description of a Puffin file's blobs begins, and the description.

    Args:
        content: The whole file.

    Raises:
        CompressedFooterError: The footer is compressed.
        ValueError: The file is damaged. The text says what is wrong with it.
    """
    if len(content) < _END.size:
        raise ValueError(f"it has {len(content)} bytes, which is too short")
    size, flags, magic = _END.unpack(content[-_END.size :])
    start = len(content) - _END.size - size
    if (
        magic != PUFFIN_MAGIC
        or start < 2 * len(PUFFIN_MAGIC)
        or content[start - len(PUFFIN_MAGIC) : start] != PUFFIN_MAGIC
    ):
        raise ValueError("it has no footer")
    if flags != _NO_FLAGS:
        raise CompressedFooterError("its footer is compressed")
    match json.loads(content[start : start + size]):
        case {"blobs": list()} as description:
            return start, description
    raise ValueError("its footer describes no blobs")
