"""Loops over decimals that are stored as the bytes of their unscaled values."""

from __future__ import annotations

from typing import Final

import numpy as np

from fluss_tiering.formats.compiled import (
    ALL_GOOD,
    INT32_IN,
    INT32_OUT,
    INT64,
    INT64_IN,
    INT64_OUT,
    UINT8_IN,
    UINT8_OUT,
    Int32s,
    Int64s,
    UInt8s,
    compiled,
)

_SIGN: Final = np.uint64(0x80)


@compiled(INT64_IN, INT32_OUT, UINT8_OUT, result=INT64)
def decimals_to_bytes(words: Int64s, offsets: Int32s, out: UInt8s) -> int:
    """Write unscaled decimals as Java's `BigInteger.toByteArray` does.

    A value is in two's complement and big-endian order, and takes as few bytes as possible.

    Args:
        words: The low and the high half of each value.
        offsets: The n + 1 positions between the byte strings. This function writes them.
        out: The bytes that this function writes, with room for 16 bytes per value. Only the first `offsets[n]` of them
            are written.
    """
    position = 0
    offsets[0] = 0
    for i in range(offsets.size - 1):
        low = np.uint64(words[2 * i])
        high = np.uint64(words[2 * i + 1])
        fill = np.uint64(0xFF) if words[2 * i + 1] < 0 else np.uint64(0)
        sign = fill & _SIGN
        leading = True
        for j in range(16):
            word = high if j < 8 else low
            byte = (word >> np.uint64(8 * (7 - (j & 7)))) & np.uint64(0xFF)
            if leading and j < 15 and byte == fill:
                follow = high if j < 7 else low
                following = (follow >> np.uint64(8 * (7 - ((j + 1) & 7)))) & _SIGN
                if following == sign:
                    continue
            leading = False
            out[position] = byte
            position += 1
        offsets[i + 1] = position
    return ALL_GOOD


@compiled(UINT8_IN, UINT8_IN, INT64_IN, INT32_IN, INT64_OUT, result=INT64)
def decimals_from_bytes(data: UInt8s, valid: UInt8s, positions: Int64s, lengths: Int32s, words: Int64s) -> int:
    """Read what `decimals_to_bytes` writes, at the places where `read_field` found the byte strings.

    Args:
        data: The bytes to read.
        valid: 0 for each null and 1 for each value, or an empty array if there is no null. A null becomes the number 0.
        positions: The position of each byte string in `data`.
        lengths: The length of each byte string.
        words: The low and the high half of each value. This function writes them.

    Returns:
        The first row whose byte string is empty or longer than 16 bytes, or ALL_GOOD.
    """
    for i in range(positions.size):
        low = np.uint64(0)
        high = np.uint64(0)
        if valid.size == 0 or valid[i] != 0:
            length = lengths[i]
            if length < 1 or length > 16:
                return i
            start = positions[i]
            if data[start] & np.uint8(0x80):
                low = ~low
                high = ~high
            for j in range(length):
                high = (high << np.uint64(8)) | (low >> np.uint64(56))
                low = (low << np.uint64(8)) | np.uint64(data[start + j])
        words[2 * i] = np.int64(low)
        words[2 * i + 1] = np.int64(high)
    return ALL_GOOD
