"""Our metrics are those that Iceberg's own Java code and Spark's own writer give for the same settings and rows."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lake_support import Lake

from fluss_tiering.lake.iceberg.layout import schema_json
from fluss_tiering.lake.iceberg.metrics.bounds import encoded
from fluss_tiering.lake.iceberg.metrics.modes import MetricsMode, metrics_modes

NOON = dt.datetime(2024, 2, 29, 12, 0, 0, 1)  # noqa: DTZ001 - a TIMESTAMP has no zone
TYPES = {
    "id": "INT NOT NULL",
    "yes": "BOOLEAN",
    "tiny": "TINYINT",
    "big": "BIGINT",
    "real": "FLOAT",
    "zero": "DOUBLE",
    "d9": "DECIMAL(9, 2)",
    "d18": "DECIMAL(18, 0)",
    "d38": "DECIMAL(38, 3)",
    "text": "STRING",
    "last": "STRING",
    "bytes": "BYTES",
    "ff": "BYTES",
    "day": "DATE",
    "at": "TIMESTAMP(6)",
    "ltz": "TIMESTAMP_LTZ(6)",
    "nulls": "INT",
    "row": "ROW<x INT, deep ROW<z STRING>>",
    "list": "ARRAY<STRING>",
    "map": "MAP<STRING, DOUBLE>",
    "rows": "ARRAY<ROW<q INT>>",
}
ROWS = [
    {
        "id": 1,
        "yes": True,
        "tiny": -3,
        "big": 2**60,
        "real": 1.5,
        "zero": -0.0,
        "d9": Decimal("-1.23"),
        "d18": Decimal(-(10**17)),
        "d38": Decimal("1.5"),
        "text": "\ud7ff" * 20,
        "last": "\U0010ffff" * 20,
        "bytes": b"\xff" * 20,
        "ff": b"a" * 15 + b"\xff\xff",
        "day": dt.date(1, 1, 1),
        "at": NOON,
        "ltz": NOON.replace(tzinfo=dt.UTC),
        "row": {"x": 1, "deep": {"z": "a text that is longer than 16 characters"}},
        "list": ["a", None],
        "map": [("k", 1.0)],
        "rows": [{"q": 1}, None],
    },
    {"id": 2, "yes": False, "tiny": 4, "real": -1.5, "zero": 0.0, "d9": Decimal(128), "d18": Decimal(255), "text": "b"},
    {"id": 3, "zero": -0.0, "last": "", "bytes": b"\x00" * 17, "row": {"x": None, "deep": None}},
]


@pytest.mark.parametrize("mode", ["truncate(16)", "truncate(1)", "full", "counts", "none"])
@pytest.mark.sampled(2)
def test_spark_writes_the_same_metrics_of_the_same_rows(spark, tmp_path, mode):  # D40
    properties = {"write.metadata.metrics.default": mode, "write.metadata.metrics.column.row.x": "full"}
    lake = Lake(spark, tmp_path, TYPES, properties=properties)
    lake.commit(lake.batch(ROWS))
    given = ", ".join(f"'{key}'='{value}'" for key, value in properties.items())
    source, copy = f"{lake.name}.db.t", f"{lake.name}.db.copy"
    spark.sql(f"CREATE TABLE {copy} USING iceberg TBLPROPERTIES ({given}) AS SELECT /*+ COALESCE(1) */ * FROM {source}")

    # Physical types, logical types, field ids, and what is required.  # D50
    assert parquet_schema(tmp_path / "db" / "t") == parquet_schema(tmp_path / "db" / "copy")
    ours, theirs = metrics_of(spark, source), metrics_of(spark, copy)
    if not mode.startswith("truncate") and mode != "full":
        # Our tables are sorted by this column, for which Iceberg then wants bounds.
        assert ours.pop("__offset")["upper_bound"] == 2
        theirs.pop("__offset")
    assert ours == theirs


def parquet_schema(folder: Path) -> list[str]:
    """Return the lines of the schema of a table's only file, without its own name."""
    (file,) = folder.glob("data/**/*.parquet")
    return str(pq.ParquetFile(file).metadata.schema).splitlines()[2:]


def metrics_of(spark, table: str) -> dict[str, dict]:
    """Return the metrics of the table's only file by column, with the names of the columns that have a size."""
    found = f"SELECT to_json(readable_metrics, map('ignoreNullFields', 'false')) AS found FROM {table}.files"
    (row,) = spark.sql(found).collect()
    metrics = json.loads(row.found)
    return {name: {**each, "column_size": each["column_size"] is not None} for name, each in metrics.items()}


MANY = {f"c{number}": "INT" for number in range(99)}
NESTED = {"row": "ROW<x INT, deep ROW<z STRING>>", "list": "ARRAY<INT>", "map": "MAP<STRING, INT>"}


@pytest.mark.parametrize(
    ("columns", "properties"),
    [
        ({"a": "INT", **NESTED}, {}),
        ({"a": "INT", **NESTED}, {"default": "FULL", "column.row.deep.z": "none", "column.list.element": "counts"}),
        ({"a": "INT", **NESTED}, {"default": "counts", "column.map.value": "Truncate(5)", "column.a": "nonsense"}),
        ({"a": "INT", **NESTED}, {"default": "nonsense"}),
        ({"a": "INT", **NESTED}, {"max-inferred-column-defaults": "5"}),
        ({"a": "INT", **NESTED}, {"max-inferred-column-defaults": "2", "column.row.x": "full"}),
        ({**NESTED, "a": "INT"}, {"max-inferred-column-defaults": "0"}),
        (MANY, {}),
        ({**MANY, **NESTED}, {}),
        ({**NESTED, **MANY}, {"default": "none"}),
    ],
)
def test_iceberg_reads_the_same_modes_from_the_properties(spark, tmp_path, columns, properties):  # D41
    named = {f"write.metadata.metrics.{name}": value for name, value in properties.items()}
    lake = Lake(spark, tmp_path, columns, properties=named)
    table = lake.open().java_table
    config = spark._jvm.org.apache.iceberg.MetricsConfig.forTable(table)
    fields = schema_json(lake.table.descriptor)["fields"]
    (sorted_by,) = (field["id"] for field in fields if field["name"] == "__offset")
    modes = metrics_modes(fields, named, [sorted_by])
    names = {number: table.schema().findColumnName(number) for number in modes}
    plain = [number for number in modes if table.schema().findType(number).isPrimitiveType()]

    assert {names[each]: text(modes[each]) for each in plain} == {
        names[each]: config.columnMode(names[each]).toString() for each in plain
    }


def text(mode: MetricsMode) -> str:
    if not mode.counts:
        return "none"
    if not mode.bounds:
        return "counts"
    return "full" if mode.length is None else f"truncate({mode.length})"


def test_iceberg_cuts_text_and_bytes_in_the_same_places(spark):  # D41
    util = spark._jvm.org.apache.iceberg.util
    wrap = spark._jvm.java.nio.ByteBuffer.wrap
    literal = spark._jvm.org.apache.iceberg.expressions.Literal
    last, before_surrogates = "\U0010ffff", "\ud7ff"
    for value in ("", "abc", f"ab{before_surrogates}c", before_surrogates * 4, f"a{last}{last}b", last * 4, "😀" * 4):
        whole = literal.of(value)
        for upper, cut in ((False, util.UnicodeUtil.truncateStringMin), (True, util.UnicodeUtil.truncateStringMax)):
            found = cut(whole, 3)
            ours = encoded(pa.string(), value.encode(), upper=upper, length=3)
            assert ours == (None if found is None else found.value().encode()), (value, upper)
    for data in (b"", b"abc", b"abcd", b"a\xff\xff\xff", b"\xff" * 4, b"\x00" * 4):
        whole = literal.of(wrap(data))
        for upper, cut in ((False, util.BinaryUtil.truncateBinaryMin), (True, util.BinaryUtil.truncateBinaryMax)):
            found = cut(whole, 3)
            ours = encoded(pa.binary(), data, upper=upper, length=3)
            assert ours == (None if found is None else util.ByteBuffers.toByteArray(found.value())), (data, upper)
