"""The readers that judge lake tables: DuckDB, ClickHouse and Spark give the same rows for a predicate on any type."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

import judges
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.lake.iceberg.catalog import IcebergCatalogs
from fluss_tiering.lake.protocol import LakeCommit
from fluss_tiering.model.table import Column, DataType, TableBucket, TableDescriptor, TableInfo, TablePath
from judges import CLICKHOUSE, DUCKDB, SPARK, Days, Micros, Predicate, read

NOON = dt.datetime(2024, 2, 29, 12, 0, 0, 1)  # noqa: DTZ001 - a TIMESTAMP has no zone
VALUES = {
    "BOOLEAN": True,
    "INT": 7,
    "BIGINT": 2**40,
    "FLOAT": 1.5,
    "DOUBLE": 2.5,
    "DECIMAL(9, 2)": Decimal("1.23"),
    "DECIMAL(38, 10)": Decimal("-1.5"),
    "CHAR(3)": "abc",
    "STRING": "o'ne \\ ä",
    "BYTES": b"\x00\xff",
    "DATE": dt.date(2024, 2, 29),
    "TIMESTAMP(6)": NOON,
    "TIMESTAMP_LTZ(6)": NOON.replace(tzinfo=dt.UTC),
    "ROW<x INT>": {"x": 5},
}
COLUMNS = (
    Column("k", DataType.parse("INT NOT NULL")),
    *(Column(f"of {kind}", DataType.parse(kind)) for kind in VALUES),
)
OTHER_LITERALS = {
    "DATE": Days(19_782),
    "TIMESTAMP(6)": Micros(1_709_208_000_000_001),
    "TIMESTAMP_LTZ(6)": Micros(1_709_208_000_000_001, zoned=True),
}


@pytest.fixture(scope="module")
def metadata(spark, tmp_path_factory) -> str:
    """A table with the rows 1 to 4, of which 2 has all values. 2 and 3 were changed, by equality deletes."""
    warehouse = tmp_path_factory.mktemp("judged")
    properties = {"name": "judged", "type": "hadoop", "warehouse": f"file://{warehouse}"}
    table = TableInfo(1, TablePath("db", "t"), 1, TableDescriptor(COLUMNS, ("k",), ("k",), 1, {}), 0, properties)
    full = {f"of {kind}": value for kind, value in VALUES.items()}
    for keys in ([1, 2, 3], [2], [3, 4]):
        lake = IcebergCatalogs(spark).open_table(table)
        writer = lake.file_writer().open_piece(0, lake.piece_location(0, str(uuid.uuid4())), 0)
        rows = [{"k": key, **(full if key == 2 else {})} for key in keys]
        batch = pa.RecordBatch.from_pylist(rows, schema=arrow_schema(COLUMNS))
        stamps = np.arange(len(keys))
        writer.write(batch, stamps, stamps)
        if keys != [1, 2, 3]:
            writer.delete(batch.select(["k"]))
        lake.commit([writer.close()], LakeCommit(1, 5, str(uuid.uuid4()), "/offsets", {TableBucket(1, 0): 4}))
    return judges.newest_metadata(warehouse / "db" / "t")


@pytest.mark.slow
@pytest.mark.parametrize("judge", [DUCKDB, CLICKHOUSE, SPARK])
def test_a_judge_finds_a_value_of_every_type(spark, metadata, judge):
    assert sorted(read(judge, metadata, spark=spark).column("k").to_pylist()) == [1, 2, 3, 4]
    for kind, value in VALUES.items():
        column = (f"of {kind}", "x") if isinstance(value, dict) else f"of {kind}"
        literals = [value["x"]] if isinstance(value, dict) else [value, *filter(None, [OTHER_LITERALS.get(kind)])]
        for literal in literals:
            for operator, found in ({"=": [2], ">": [], "<=": [2]}).items():
                # Spark plans each question anew, which takes most of the time.
                for push_down in (True,) if judge == SPARK else (True, False):
                    where = Predicate(column, operator, literal)
                    rows = read(judge, metadata, where, columns=["k"], push_down=push_down, spark=spark)
                    assert rows.column("k").to_pylist() == found, (kind, literal, operator, push_down)
