"""Limits of judges are theirs: a test here fails once a judge no longer has the limit."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator, Mapping
from datetime import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg import expressions as ex
from pyiceberg.expressions.visitors import translate_column_names
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, FloatType, IcebergType, IntegerType, LongType, NestedField
from pyspark.sql import SparkSession

import judges
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.lake.iceberg.catalog import IcebergCatalogs
from fluss_tiering.lake.iceberg.java import jvm_of
from fluss_tiering.lake.protocol import LakeCommit
from fluss_tiering.model.table import Column, DataType, TableBucket, TableDescriptor, TableInfo, TablePath
from torture.judging.limits import question_limit, refusal_limit, table_limit
from torture.judging.process import JudgeProcess, JudgeRefusedError
from torture.makers.predicates import Question

WITHOUT_VALUES_IN_PATHS = {
    "iceberg.write.object-storage.enabled": "true",
    "iceberg.write.object-storage.partitioned-paths": "false",
}


@pytest.fixture
def reader() -> Iterator[JudgeProcess]:
    """Return the judges that need no JVM, in a process that DuckDB and ClickHouse may end."""
    process = JudgeProcess()
    yield process
    process.stop()


@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_pyiceberg_finds_no_infinity_in_a_column_of_type_float(value: float) -> None:
    def bound(kind: FloatType | DoubleType) -> ex.BooleanExpression:
        return ex.EqualTo("x", value).bind(Schema(NestedField(1, "x", kind, required=False)))

    def limit(kind: str, compared: float) -> str | None:
        data_type = DataType.parse(kind)
        question = Question((0,), ("x",), data_type, "=", compared)
        return question_limit(judges.PYICEBERG, question, [Column("x", data_type)], [value])

    assert bound(FloatType()) == ex.AlwaysFalse()
    assert bound(DoubleType()) != ex.AlwaysFalse()
    assert limit("FLOAT", value) == "pyiceberg takes an infinity for a number beyond all FLOATs"
    assert limit("FLOAT", 1.0) is limit("DOUBLE", value) is None


def test_pyiceberg_finds_nulls_by_not_equal_in_files_from_before_a_column() -> None:
    column = Column("x", DataType.parse("INT"))
    before, now = (
        Schema(NestedField(number, name, IntegerType(), required=False)) for number, name in ((1, "y"), (2, "x"))
    )
    for operator, found in (("<>", ex.AlwaysTrue()), ("=", ex.AlwaysFalse())):
        expression = ex.NotEqualTo("x", 1) if operator == "<>" else ex.EqualTo("x", 1)
        assert translate_column_names(expression.bind(now), before, case_sensitive=True) == found
        for values in ([1, None], [1]):
            limit = question_limit(
                judges.PYICEBERG, Question((0,), ("x",), column.data_type, operator, 1), [column], values
            )
            assert (limit is not None) is (operator == "<>" and None in values)


@pytest.mark.parametrize(
    ("now", "before", "kind", "value"),
    [(LongType(), IntegerType(), "BIGINT", -(2**63)), (DoubleType(), FloatType(), "DOUBLE", -1e300)],
)
def test_pyiceberg_finds_nulls_by_numbers_beyond_the_type_from_before_a_column_was_widened(
    now: IcebergType, before: IcebergType, kind: str, value: float
) -> None:
    columns = [Column("x", DataType.parse(kind))]
    wide, narrow = (Schema(NestedField(1, "x", each, required=False)) for each in (now, before))
    for compared, is_limited in ((value, True), (1, False)):
        expression = ex.GreaterThanOrEqual("x", compared).bind(wide)
        found = translate_column_names(expression, narrow, case_sensitive=True)
        assert (found.bind(narrow) == ex.AlwaysTrue()) is is_limited
        question = Question((0,), ("x",), columns[0].data_type, ">=", compared)
        assert (question_limit(judges.PYICEBERG, question, columns, [1, None]) is not None) is is_limited


@pytest.mark.slow
def test_clickhouse_applies_no_equality_deletes_by_a_time_with_a_part_of_a_second(
    spark, reader: JudgeProcess, tmp_path: Path
) -> None:
    """It takes a TIME for a number of seconds. Seed 81153 of `make torture` found it."""
    columns = (Column("a", DataType.parse("STRING NOT NULL")), Column("k", DataType.parse("TIME(3) NOT NULL")))
    rows = [{"a": "x", "k": time(12, 30)}, {"a": "x", "k": time(12, 31, 0, 123_000)}]
    new_table_with_deletes(spark, tmp_path, columns, ["a", "k"], rows, deleted=rows)
    metadata = judges.newest_metadata(tmp_path / "db" / "t")
    assert reader.read(judges.DUCKDB, metadata, ["a"]).num_rows == 0
    assert reader.read(judges.CLICKHOUSE, metadata, ["a"]).num_rows == 1
    for judge, is_limited in ((judges.CLICKHOUSE, True), (judges.DUCKDB, False)):
        assert (table_limit(judge, columns, has_deletes=True, keys={}) is not None) is is_limited
    assert table_limit(judges.CLICKHOUSE, columns, has_deletes=False, keys={}) is None


@pytest.mark.slow
def test_duckdb_applies_no_equality_deletes_by_a_key_that_was_widened_since(
    spark, reader: JudgeProcess, tmp_path: Path
) -> None:
    columns = (Column("k", DataType.parse("INT NOT NULL")), Column("v", DataType.parse("STRING")))
    table = new_table_with_deletes(spark, tmp_path, columns, ["k"], [{"k": key} for key in (1, 2, 3)], [{"k": 2}])
    folder = tmp_path / "db" / "t"
    assert reader.read(judges.DUCKDB, judges.newest_metadata(folder), ["k"]).column("k").to_pylist() == [1, 3]
    wide = jvm_of(spark).org.apache.iceberg.types.Types.LongType.get()
    IcebergCatalogs(spark).open_table(table).java_table.updateSchema().updateColumn("k", wide).commit()
    widened = judges.newest_metadata(folder)
    with pytest.raises(JudgeRefusedError) as refused:
        reader.read(judges.DUCKDB, widened, ["k"])
    assert refusal_limit(judges.DUCKDB, str(refused.value)) is not None
    assert sorted(judges.read(judges.SPARK, widened, spark=spark).column("k").to_pylist()) == [1, 3]


@pytest.mark.slow
@pytest.mark.parametrize("in_paths", [True, False], ids=["values in paths", "no values in paths"])
@pytest.mark.parametrize("value", ["2024", "2024-01-01", "null", "x"])
def test_duckdb_takes_partition_values_for_other_types_when_it_applies_equality_deletes(
    spark, reader: JudgeProcess, tmp_path: Path, value: str, in_paths: bool
) -> None:
    """It guesses types from the paths of files, such as `p=2024`, and compares those with the deletes."""
    options = {} if in_paths else WITHOUT_VALUES_IN_PATHS
    columns = (Column("k", DataType.parse("INT NOT NULL")), Column("p", DataType.parse("STRING NOT NULL")))
    rows: list[dict[str, object]] = [{"k": key, "p": value} for key in (1, 2, 3)]
    new_table_with_deletes(
        spark, tmp_path, columns, ["k", "p"], rows, deleted=rows[:2], partition=("p", value), options=options
    )
    metadata = judges.newest_metadata(tmp_path / "db" / "t")
    for right in (judges.SPARK, judges.CLICKHOUSE):
        assert judges.read(right, metadata, spark=spark).column("k").to_pylist() == [3]
    if in_paths and value.startswith("2024"):
        with pytest.raises(JudgeRefusedError) as refused:
            reader.read(judges.DUCKDB, metadata, ["k"])
        assert refusal_limit(judges.DUCKDB, str(refused.value)) is not None
    else:
        found = reader.read(judges.DUCKDB, metadata, ["k"]).column("k").to_pylist()
        assert sorted(found) == ([1, 2, 3] if in_paths and value == "null" else [3])
    is_limited = table_limit(judges.DUCKDB, columns, has_deletes=True, keys={"p": [value]}) is not None
    assert is_limited is (value != "x")


def new_table_with_deletes(
    spark: SparkSession,
    warehouse: Path,
    columns: tuple[Column, ...],
    key: list[str],
    rows: list[dict[str, object]],
    deleted: list[dict[str, object]],
    partition: tuple[str, str] | None = None,
    options: Mapping[str, str] | None = None,
) -> TableInfo:
    """Return a table db.t of a Hadoop catalog, with one round of rows and one of equality deletes, all in one bucket.

    If a partition key and its value are given, all rows are in this partition.
    """
    keys, values = ((), ()) if partition is None else ((partition[0],), (partition[1],))
    properties = {"name": f"lake_of_{warehouse.name}", "type": "hadoop", "warehouse": f"file://{warehouse}"}
    descriptor = TableDescriptor(columns, tuple(key), (key[0],), 1, options or {}, partition_keys=keys)
    table = TableInfo(1, TablePath("db", "t"), 1, descriptor, 0, properties)
    for is_delete, chosen in ((False, rows), (True, deleted)):
        lake = IcebergCatalogs(spark).open_table(table)
        location = lake.piece_location(0, str(uuid.uuid4()), values)
        writer = lake.file_writer().open_piece(0, location, 0, values)
        batch = pa.RecordBatch.from_pylist(chosen, schema=arrow_schema(columns))
        if is_delete:
            writer.delete(batch.select(key))
        else:
            writer.write(batch, np.arange(len(rows)), np.arange(len(rows)))
        lake.commit([writer.close()], LakeCommit(1, 5, str(uuid.uuid4()), "/offsets", {TableBucket(1, 0): 4}))
    return table
