"""The comparison of hashes with the entries of blocks, compiled."""

from __future__ import annotations

from fluss_tiering.formats.compiled import INT64, INT64_IN, INT64_OUT, Int64s, compiled


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
