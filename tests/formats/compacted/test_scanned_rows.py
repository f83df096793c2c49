"""Rows of scan sessions, and values of both layouts, in the bytes that Fluss 1.0's own classes make."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from refusals import refused

from cases import cases
from fluss_tiering.formats.compacted.kv_batches import stored_values
from fluss_tiering.formats.compacted.row import decode_values, encode_values
from fluss_tiering.formats.compacted.value_layout import PLAIN, TAGGED, VALUE_LAYOUTS
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, DataType

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


MADE_BY_FLUSS = Path(__file__).parents[1] / "data" / "fluss-1.0.0-value-layouts.txt"
COLUMNS = (Column("id", DataType.parse("BIGINT NOT NULL")), Column("name", DataType.parse("STRING")))


def made_by_fluss(version: str) -> Iterator[tuple[int, dict[str, Any], bytes]]:
    """Yield schema id, row and stored value of each line of a layout."""
    for line in MADE_BY_FLUSS.read_text().splitlines():
        layout, schema_id, _, key, name, value = line.split("|")
        if layout == version:
            row = {"id": int(key), "name": None if name == "null" else name}
            yield int(schema_id), row, bytes.fromhex(value)


@pytest.mark.parametrize("version", sorted(VALUE_LAYOUTS))
def test_values_that_fluss_made_are_read(version: str) -> None:
    layout = VALUE_LAYOUTS[version]
    found = list(made_by_fluss(version))
    assert len(found) == 6
    for schema_id, row, value in found:
        values = pa.array([value])
        assert decode_values(values, COLUMNS, schema_id, layout=layout).to_pylist() == [row]
        assert decode_values(values, COLUMNS, schema_id, [1], layout=layout).to_pylist() == [{"name": row["name"]}]
    many = [(row, value) for schema_id, row, value in found if schema_id == 1]
    stored = pa.array([b"before", *(value for _, value in many), b"behind"]).slice(1, len(many))
    assert decode_values(stored, COLUMNS, 1, layout=layout).to_pylist() == [row for row, _ in many]


def test_plain_values_are_written_as_fluss_writes_them() -> None:
    for schema_id, row, value in made_by_fluss("1"):
        batch = pa.RecordBatch.from_pylist([row], schema=arrow_schema(COLUMNS))
        assert encode_values(batch, COLUMNS, schema_id).to_pylist() == [value]


def test_a_value_of_the_other_layout_is_refused() -> None:
    plain, tagged = (next(made_by_fluss(version))[2] for version in ("1", "2"))
    with refused(ErrorCode.CORRUPT_DATA, "the stored value 0 of 1", "another schema id than 1"):
        decode_values(pa.array([tagged]), COLUMNS, 1, layout=PLAIN)
    with refused(ErrorCode.CORRUPT_DATA, "the stored value 0 of 1"):
        decode_values(pa.array([plain]), COLUMNS, 1, layout=TAGGED)


@cases("length", range(11))
def test_a_value_that_ends_in_its_tag_or_schema_id_is_refused(length: int) -> None:
    whole = [value for _, _, value in made_by_fluss("2")][-1]
    with refused(ErrorCode.CORRUPT_DATA, "the stored value 1 of 2 is shorter than its null bits"):
        decode_values(pa.array([whole, whole[:length]]), COLUMNS, 1, layout=TAGGED)
