"""Compiled loops of the index: SipHash-2-4 with a result of 128 bits, and the comparison of hashes with blocks.

SipHash hashes messages of whole words of 8 bytes here. The algorithm is that of the paper by Aumasson and Bernstein,
with the longer result of the authors' own C code.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from fluss_tiering.formats.compiled import INT64, INT64_IN, INT64_OUT, Int64s, compiled, helper

_V0: Final = np.uint64(0x736F6D6570736575)
_V1: Final = np.uint64(0x646F72616E646F6D ^ 0xEE)
_V2: Final = np.uint64(0x6C7967656E657261)
_V3: Final = np.uint64(0x7465646279746573)
_AFTER_MESSAGE: Final = np.uint64(0xEE)
_BETWEEN_HALVES: Final = np.uint64(0xDD)
_LENGTH_SHIFT: Final = np.uint64(56)
_R13: Final = np.uint64(13)
_R16: Final = np.uint64(16)
_R17: Final = np.uint64(17)
_R21: Final = np.uint64(21)
_R32: Final = np.uint64(32)
_R43: Final = np.uint64(43)
_R47: Final = np.uint64(47)
_R48: Final = np.uint64(48)
_R51: Final = np.uint64(51)

_State = tuple[np.uint64, np.uint64, np.uint64, np.uint64]


@helper
def _round(v0: np.uint64, v1: np.uint64, v2: np.uint64, v3: np.uint64) -> _State:
    v0 += v1
    v1 = ((v1 << _R13) | (v1 >> _R51)) ^ v0
    v0 = (v0 << _R32) | (v0 >> _R32)
    v2 += v3
    v3 = ((v3 << _R16) | (v3 >> _R48)) ^ v2
    v0 += v3
    v3 = ((v3 << _R21) | (v3 >> _R43)) ^ v0
    v2 += v1
    v1 = ((v1 << _R17) | (v1 >> _R47)) ^ v2
    v2 = (v2 << _R32) | (v2 >> _R32)
    return v0, v1, v2, v3


@helper
def _halves(words: Int64s, first: int, behind: int, k0: np.uint64, k1: np.uint64) -> tuple[np.uint64, np.uint64]:
    v0 = k0 ^ _V0
    v1 = k1 ^ _V1
    v2 = k0 ^ _V2
    v3 = k1 ^ _V3
    for i in range(first, behind):
        word = np.uint64(words[i])
        v3 ^= word
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0 ^= word
    # The last word has the length in bytes, and the bytes behind the last whole word, of which there are none.
    word = np.uint64((behind - first) * 8) << _LENGTH_SHIFT
    v3 ^= word
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0 ^= word
    v2 ^= _AFTER_MESSAGE
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    first_half = v0 ^ v1 ^ v2 ^ v3
    v1 ^= _BETWEEN_HALVES
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return first_half, v0 ^ v1 ^ v2 ^ v3


@compiled(INT64_IN, INT64_IN, INT64, INT64, INT64_OUT, INT64_OUT, result=INT64)
def hash_messages(  # noqa: PLR0917 - compiled code takes no keywords
    words: Int64s, starts: Int64s, k0: int, k1: int, first: Int64s, second: Int64s
) -> int:
    """Hash messages.

    Args:
        words: The words of all messages.
        starts: The index of the first word of each message, and at the end the index behind the last message.
        k0: The first half of the key, little-endian.
        k1: The second half.
        first: Receives the first half of each hash, little-endian.
        second: Receives the second half.
    """
    for i in range(first.size):
        one, two = _halves(words, starts[i], starts[i + 1], np.uint64(k0), np.uint64(k1))
        first[i] = np.int64(one)
        second[i] = np.int64(two)
    return 0


@compiled(INT64_IN, INT64, INT64_IN, INT64, INT64, INT64_OUT, result=INT64)
def checksums(  # noqa: PLR0917 - compiled code takes no keywords
    words: Int64s, size: int, numbers: Int64s, k0: int, k1: int, sums: Int64s
) -> int:
    """Compute the checksum of each item but for its last word, where the checksum itself is kept.

    It is the first half of the hash under a key that differs with the item's number. So an item at a wrong place has
    a wrong checksum.

    Args:
        words: The words of all items, one item after the other.
        size: The number of words of an item.
        numbers: The number of each item in its file.
        k0: The first half of the key, little-endian.
        k1: The second half.
        sums: Receives the checksums.
    """
    for i in range(sums.size):
        key = np.uint64(k1) ^ np.uint64(numbers[i])
        one, _ = _halves(words, i * size, i * size + size - 1, np.uint64(k0), key)
        sums[i] = np.int64(one)
    return 0


@compiled(INT64_IN, INT64, INT64, INT64_IN, INT64_IN, INT64_IN, INT64_IN, INT64_OUT, INT64_OUT, INT64_OUT, result=INT64)
def same_hashes(  # noqa: PLR0917 - compiled code takes no keywords
    words: Int64s,
    size: int,
    entries: int,
    blocks: Int64s,
    high: Int64s,
    low: Int64s,
    queries: Int64s,
    at: Int64s,
    found: Int64s,
    slots: Int64s,
) -> int:
    """Find the entries of blocks that have the hashes of queries, and return their number.

    What does not fit into the results is only counted.

    Args:
        words: The words of the blocks. A block begins with the upper halves of its hashes, then come the lower halves.
        size: The number of words of a block.
        entries: The number of entries of a block.
        blocks: For each pair of a query and a block, the index of the block.
        high: The upper halves of the hashes that are asked for.
        low: The lower halves.
        queries: For each pair the index of the hash.
        at: Receives the index of the block of each entry that is found.
        found: Receives the index of its hash.
        slots: Receives its place in the block.
    """
    count = 0
    for pair in range(queries.size):
        query = queries[pair]
        start = blocks[pair] * size
        for slot in range(entries):
            if words[start + slot] == high[query] and words[start + entries + slot] == low[query]:
                if count < at.size:
                    at[count] = blocks[pair]
                    found[count] = query
                    slots[count] = slot
                count += 1
    return count
