"""Log batches of each magic that Fluss 1.0.0's own classes made (`data/FlussStatisticsVectors.java`)."""

from __future__ import annotations

from pathlib import Path

from row_of_all_types import table_columns

from cases import cases
from fluss_tiering.formats.log.batch import LogBatchHeader, check_crc, read_header
from fluss_tiering.formats.log.decoding import decode_log_batch
from fluss_tiering.formats.schema import arrow_schema

COLUMNS = table_columns(
    "INT NOT NULL",
    "BOOLEAN",
    "TINYINT",
    "SMALLINT",
    "BIGINT",
    "FLOAT",
    "DOUBLE",
    "STRING",
    "DATE",
    "TIME(3)",
    "TIMESTAMP(0)",
    "TIMESTAMP(3)",
    "TIMESTAMP(6)",
    "TIMESTAMP_LTZ(9)",
    "DECIMAL(5, 2)",
    "DECIMAL(20, 0)",
    "DECIMAL(38, 1)",
    "INT",
    "BYTES",
)


def vector(name: str) -> tuple[memoryview, LogBatchHeader]:
    data = Path(__file__).parents[1].joinpath("data", f"fluss-1.0.0-{name}.bin").read_bytes()
    header = read_header(memoryview(data), 0)
    assert header is not None
    return memoryview(data), header


@cases(("name", "magic"), [("magic-0", 0), ("magic-1", 1), ("magic-2", 2), ("magic-1-without-statistics", 1)])
def test_batches_of_fluss_are_read(name: str, magic: int) -> None:
    data, header = vector(name)
    assert (header.magic, header.size, header.base_offset, header.next_offset) == (magic, len(data), 40, 43)
    assert (header.commit_timestamp, header.schema_id, header.append_only) == (1_234_567, 1, False)
    check_crc(data, 0, header)
    batch = decode_log_batch(data, 0, arrow_schema(COLUMNS))
    assert batch.change_types is not None
    assert batch.change_types.tolist() == [1, 1, 1]
    rows = batch.records.to_pylist()
    assert [row["c0"] for row in rows] == [1, 300, 2]
    assert [row["c7"] for row in rows] == ["hé and more than seven bytes", "short", None]
    of_magic_0 = decode_log_batch(vector("magic-0")[0], 0, arrow_schema(COLUMNS)).records
    # NaN does not equal itself.
    assert repr(batch.records.to_pylist()) == repr(of_magic_0.to_pylist())
