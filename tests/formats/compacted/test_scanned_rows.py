"""The rows of scan sessions in the bytes of Fluss 1.0, and bytes that are no such rows."""

from __future__ import annotations

import random
import struct

import pytest

from cases import cases
from fluss_tiering.formats.compacted.kv_batches import stored_values
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

# As a server of Fluss 1.0 sent it for the rows (0, 'n0') and (256, 'n256').
SENT = bytes.fromhex("1e000000 00 02000000 07000000 0100 00 00 026e30 0a000000 0100 00 8002 046e323536")
ROWS = [bytes.fromhex("0100 00 00 026e30"), bytes.fromhex("0100 00 8002 046e323536")]


def batch(*rows: bytes, magic: int = 0, count: int | None = None, length: int | None = None) -> bytes:
    body = b"".join(len(row).to_bytes(4, "little") + row for row in rows)
    head = struct.pack("<bi", magic, len(rows) if count is None else count)
    return (len(head + body) if length is None else length).to_bytes(4, "little") + head + body


def refusal(records: bytes) -> FlussTieringError:
    with pytest.raises(FlussTieringError) as caught:
        stored_values(records)
    return caught.value


def test_the_rows_of_a_server() -> None:
    assert stored_values(SENT).to_pylist() == ROWS
    assert batch(*ROWS) == SENT
    assert stored_values(b"").to_pylist() == []
    assert stored_values(batch()).to_pylist() == []
    assert stored_values(batch(b"", b"abc", b"")).to_pylist() == [b"", b"abc", b""]


def test_a_newer_format_is_refused_by_its_number() -> None:
    error = refusal(batch(*ROWS, magic=1))
    assert error.code is ErrorCode.UNSUPPORTED_VERSION
    assert "magic 1" in error.message
    assert "expected 0" in error.message


@cases(
    "records",
    [
        *(SENT[:size] for size in range(1, len(SENT))),
        SENT + b"\0",
        batch(*ROWS, length=29),
        batch(*ROWS, count=1),
        batch(*ROWS, count=3),
        batch(*ROWS, count=-1),
        batch(*ROWS, count=1 << 30),
        batch(ROWS[0], b"", count=1),
        SENT[:9] + b"\xff\xff\xff\xff" + SENT[13:],
        SENT[:9] + b"\xff\xff\xff\x7f" + SENT[13:],
        SENT[:9] + b"\x0b\0\0\0" + SENT[13:],
    ],
)
def test_damaged_rows_are_refused(records: bytes) -> None:
    assert refusal(records).code is ErrorCode.CORRUPT_DATA


def test_no_bytes_are_taken_for_others() -> None:
    generated = random.Random(1)
    for _ in range(2_000):
        damaged = bytearray(SENT)
        damaged[generated.randrange(4, len(SENT))] = generated.randrange(256)
        try:
            values = stored_values(bytes(damaged)).to_pylist()
        except FlussTieringError:
            continue
        assert batch(*values) == bytes(damaged)
