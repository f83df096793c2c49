"""Sizes in bytes as Fluss writes them in options: `10mb`, `512 kb`, `1024` (`org.apache.fluss.config.MemorySize`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from fluss_tiering.model.errors import ErrorCode, FlussTieringError

_BYTES_BY_LABEL: Final[Mapping[str, int]] = {
    label: 1 << 10 * power
    for power, labels in enumerate(
        (
            ("", "b", "bytes"),
            ("k", "kb", "kibibytes"),
            ("m", "mb", "mebibytes"),
            ("g", "gb", "gibibytes"),
            ("t", "tb", "tebibytes"),
        )
    )
    for label in labels
}
_SIZE: Final = re.compile(r"([0-9]{1,18})\s*([a-z]*)")


def parse_memory_size(text: str) -> int:
    """Return a size in bytes. One kb has 1024 bytes.

    Raises:
        FlussTieringError: INVALID_REQUEST if the text is not a whole number with or without a unit.
    """
    match = _SIZE.fullmatch(text.strip().lower())
    if match is None or match.group(2) not in _BYTES_BY_LABEL:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"{text!r} is not a size: expected a whole number and a unit (b, kb, mb, gb, tb), for example 10mb",
        )
    return int(match.group(1)) * _BYTES_BY_LABEL[match.group(2)]


def memory_size_text(size: int) -> str:
    """Return a size as users write it, in the largest unit in which it is a whole number, such as `64mb`."""
    unit = next((each for each in ("tb", "gb", "mb", "kb") if size and size % _BYTES_BY_LABEL[each] == 0), "b")
    return f"{size // _BYTES_BY_LABEL[unit]}{unit}"
