"""Log batches with a column that cannot be decoded, although their checksums are right."""

from crc32c import crc32c

ZSTD_FRAME = b"\x28\xb5\x2f\xfd"


def with_broken_last_column(batch: bytes) -> bytes:
    """Return a batch of magic 0, compressed with ZSTD, whose last buffer is no longer a frame of ZSTD."""
    broken = bytearray(batch)
    frame = broken.rindex(ZSTD_FRAME)
    broken[frame : frame + len(ZSTD_FRAME)] = bytes(len(ZSTD_FRAME))
    broken[21:25] = crc32c(broken[25:]).to_bytes(4, "little")
    return bytes(broken)
