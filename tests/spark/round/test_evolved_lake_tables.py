"""Users evolve lake tables. What is no obstacle works. What is one is refused with the statement that removes it."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from py4j.java_gateway import JavaObject
from source_support import columns
from spark_support import LEGACY, Tiering

from engine_support import new_path
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.table import TableDescriptor, TableInfo, WriteKind

COLUMNS = columns(
    id="INT NOT NULL", name="STRING", n="INT", f="FLOAT", d="DECIMAL(10, 2)", s="ROW<a INT, b STRING>", xs="ARRAY<INT>"
)


@pytest.fixture(params=["keyed", "log"])
def table(request: pytest.FixtureRequest, tiering: Tiering) -> TableInfo:
    """Return a tiered table of several types."""
    key = {} if request.param == "log" else {"primary_key": ("id",), "bucket_keys": ("id",)}
    options = {"table.datalake.enabled": "true", **({} if request.param == "clean" else LEGACY)}
    made = tiering.client.create_table(new_path(), TableDescriptor(COLUMNS, num_buckets=1, properties=options, **key))
    write(tiering, made, range(5))
    tiering.tier(made)
    return made


def write(tiering: Tiering, table: TableInfo, ids: range) -> None:
    rows = [
        {"id": n, "name": f"n{n}", "n": n, "f": n / 2, "d": n, "s": {"a": n, "b": "b"} if n % 2 else None, "xs": [n]}
        for n in ids
    ]
    kind = WriteKind.UPSERT if table.has_primary_key else WriteKind.APPEND
    batch = pa.Table.from_pylist(rows, schema=arrow_schema(COLUMNS))
    assert sum(tiering.client.write_rows(table.path, kind, [batch])) == len(rows)


def goes_on(tiering: Tiering, table: TableInfo) -> None:
    """Write rows, of which some have the keys of those before, tier them, and compare everything."""
    write(tiering, table, range(3, 8))
    tiering.tier(table)
    ids = sorted(row.id for row in tiering.spark.sql(f"SELECT id FROM {tiering.name(table)}").collect())
    assert ids == (list(range(8)) if table.has_primary_key else sorted([*range(5), *range(3, 8)]))
    audit = tiering.audit(table)
    assert audit.equal, audit


def unchecked(tiering: Tiering, table: TableInfo) -> JavaObject:
    """Return the lake table whether or not rounds can write to it."""
    spark = tiering.spark
    return spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, tiering.name(table))


# D53
@pytest.mark.sampled(1)
@pytest.mark.parametrize("table", ["log", "keyed", "clean"], indirect=True)
def test_changes_that_are_no_obstacle(tiering: Tiering, table: TableInfo):
    for change in (
        "ADD COLUMN note STRING",
        "ADD COLUMN s.more INT",
        "ADD COLUMN in_front INT FIRST",
        "ALTER COLUMN name AFTER d",
        "ALTER COLUMN s.b FIRST",
        "ALTER COLUMN id TYPE BIGINT",
        "ALTER COLUMN n TYPE BIGINT",
        "ALTER COLUMN f TYPE DOUBLE",
        "ALTER COLUMN d TYPE DECIMAL(20, 2)",
        "ALTER COLUMN s.a TYPE BIGINT",
        "ALTER COLUMN xs.element TYPE BIGINT",
        "ALTER COLUMN n COMMENT 'a number'",
        *(["ALTER COLUMN __timestamp DROP NOT NULL"] if LEGACY.items() <= table.descriptor.properties.items() else []),
        "SET TBLPROPERTIES ('write.parquet.compression-codec' = 'snappy', 'write.object-storage.enabled' = 'true')",
        "SET TBLPROPERTIES ('write.format.default' = 'orc', 'write.metadata.metrics.default' = 'none')",
        "SET TBLPROPERTIES ('format-version' = '3')",
    ):
        tiering.spark.sql(f"ALTER TABLE {tiering.name(table)} {change}")
    iceberg = tiering.spark._jvm.org.apache.iceberg
    by_n = iceberg.expressions.Expressions.ref("n"), iceberg.NullOrder.NULLS_FIRST
    tiering.lake_table(table).java_table.replaceSortOrder().asc(*by_n).commit()

    goes_on(tiering, table)

    row = tiering.spark.sql(f"SELECT * FROM {tiering.name(table)} WHERE id = 7").first()
    assert (row.in_front, row.note, row.n, row.f, row.s.more, row.s.a, row.xs) == (None, None, 7, 3.5, None, 7, [7])


# D53
@pytest.mark.sampled(1)
def test_an_obstacle_is_refused_with_the_statement_that_removes_it(tiering: Tiering, table: TableInfo):
    for change, said in (
        ("RENAME COLUMN name TO label", "the column `name` was renamed to `label`"),
        ("RENAME COLUMN s.b TO label", "the column `s`.`b` was renamed to `s`.`label`"),
        ("DROP COLUMN n", "the column `n` int is missing"),
        ("SET TBLPROPERTIES ('write.target-file-size-bytes' = 'big')", "is 'big': expected a whole number of bytes"),
        ("SET TBLPROPERTIES ('write.parquet.compression-codec' = 'lzo')", "is 'lzo': expected one of"),
    ):
        tiering.spark.sql(f"ALTER TABLE {tiering.name(table)} {change}")
        write(tiering, table, range(2))

        error = tiering.fail(table)

        assert said in error
        tiering.spark.sql(re.search(r"ALTER TABLE [^(]*(\('.*'\))?", error)[0])
        tiering.tier(table)


# D53
@pytest.mark.sampled(1)
def test_another_partitioning_is_left_alone_in_a_log_table_and_refused_with_a_primary_key(
    tiering: Tiering, table: TableInfo
):
    tiering.lake_table(table).java_table.updateSpec().addField("name").commit()
    if not table.has_primary_key:
        goes_on(tiering, table)
        return
    write(tiering, table, range(2))
    error = tiering.fail(table)
    assert "DROP PARTITION FIELD `name`" in error
    # Somebody compacts the table with the new partitioning, and then undoes it.
    catalog = table.lake_catalog_properties["name"]
    rewrite = f"CALL {catalog}.system.rewrite_data_files(table => '{table.path}', options => map('rewrite-all', 'true'"
    tiering.spark.sql(f"{rewrite}))")
    unchecked(tiering, table).updateSpec().removeField("name").commit()

    error = tiering.fail(table)

    assert "some of its files have another partitioning" in error
    (spec,) = re.findall(r"output-spec-id => (\d+)", error)
    tiering.spark.sql(f"{rewrite}, 'output-spec-id', '{spec}'))")
    goes_on(tiering, table)
