"""Keys as Iceberg's bucket transform hashes them, by the words of Iceberg's specification (Appendix B)."""

from __future__ import annotations

import pyarrow as pa

from cases import cases
from fluss_tiering.formats.keys import encode_iceberg_keys
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.table import Column, DataType


@cases(
    ("kind", "value", "expected"),
    [
        ("BINARY(4)", b"\x00\xff\x7f\x80", b"\x00\xff\x7f\x80"),
        ("BYTES", b"", b""),
        ("STRING", "ß\U0001f600", "ß\U0001f600".encode()),
        ("CHAR(2)", "ab", b"ab"),
        ("INT", -1, b"\xff" * 8),
        ("BIGINT", 34, b"\x22" + bytes(7)),
    ],
)
def test_the_key_of_a_row(kind: str, value: object, expected: bytes) -> None:
    column = Column("k", DataType.parse(f"{kind} NOT NULL"))
    rows = pa.RecordBatch.from_pylist([{"k": value}, {"k": value}], schema=arrow_schema([column]))
    assert encode_iceberg_keys(rows, column).to_pylist() == [expected, expected]
    assert encode_iceberg_keys(rows.slice(1), column).to_pylist() == [expected]
