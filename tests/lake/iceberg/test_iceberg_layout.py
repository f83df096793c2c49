"""The layout of a lake table is Fluss's. It is copied by hand from `IcebergLakeCatalog` of Fluss 0.9.1."""

from __future__ import annotations

import copy
import itertools

import pytest
from refusals import refused

from fluss_tiering.lake.iceberg.layout import (
    is_clean,
    partition_fields,
    partition_of,
    schema_json,
    table_properties,
)
from fluss_tiering.lake.iceberg.validation import LakeLayout, check_layout, is_wider, refuse_times
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.partition_by import PartitionTransform
from fluss_tiering.model.table import SYSTEM_COLUMNS, Column, DataType, TableDescriptor, TableInfo, TablePath


def columns(**types: str) -> tuple[Column, ...]:
    return tuple(Column(name, DataType.parse(text)) for name, text in types.items())


KEYED = TableDescriptor(
    (Column("id", DataType.parse("INT NOT NULL"), "the key"), *columns(name="STRING")), ("id",), ("id",), 4
)
KEYED_SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "identifier-field-ids": [1],
    "fields": [
        {"id": 1, "name": "id", "required": True, "type": "int", "doc": "the key"},
        {"id": 2, "name": "name", "required": False, "type": "string"},
        {"id": 3, "name": "__bucket", "required": True, "type": "int"},
        {"id": 4, "name": "__offset", "required": True, "type": "long"},
        {"id": 5, "name": "__timestamp", "required": True, "type": "timestamptz"},
    ],
}
KEYED_SPEC = {
    "spec-id": 0,
    "fields": [{"name": "id_bucket", "transform": "bucket[4]", "source-id": 1, "field-id": 1000}],
}


def test_user_columns_then_the_three_of_fluss_with_the_key_as_identifier():
    assert schema_json(KEYED) == KEYED_SCHEMA


def test_a_log_table_has_no_identifier_fields():
    assert "identifier-field-ids" not in schema_json(TableDescriptor(columns(a="INT")))


def test_every_type_is_fluss_s():
    types = {
        "BOOLEAN": "boolean",
        "TINYINT": "int",
        "SMALLINT": "int",
        "INT": "int",
        "BIGINT": "long",
        "FLOAT": "float",
        "DOUBLE": "double",
        "DECIMAL(38, 18)": "decimal(38, 18)",
        "CHAR(3)": "string",
        "STRING": "string",
        "BINARY(3)": "binary",
        "BYTES": "binary",
        "DATE": "date",
        "TIME(9)": "time",
        "TIMESTAMP(9)": "timestamp",
        "TIMESTAMP(0)": "timestamp",
        "TIMESTAMP_LTZ(3)": "timestamptz",
    }
    descriptor = TableDescriptor(tuple(Column(f"c{i}", DataType.parse(text)) for i, text in enumerate(types)))

    fields = schema_json(descriptor)["fields"]

    assert [field["type"] for field in fields[: len(types)]] == list(types.values())


def test_nested_types_have_ids_of_their_own_behind_the_columns():
    nested = columns(a="ARRAY<INT NOT NULL>", m="MAP<STRING, ROW<x INT, y ARRAY<BYTES>>> NOT NULL")
    fields = schema_json(TableDescriptor(nested))["fields"]
    assert fields[0]["type"] == {"type": "list", "element-id": 6, "element": "int", "element-required": True}
    assert fields[1]["type"] == {
        "type": "map",
        "key-id": 7,
        "value-id": 8,
        "key": "string",
        "value": {
            "type": "struct",
            "fields": [
                {"id": 9, "name": "x", "required": False, "type": "int"},
                {
                    "id": 10,
                    "name": "y",
                    "required": False,
                    "type": {"type": "list", "element-id": 11, "element": "binary", "element-required": False},
                },
            ],
        },
        "value-required": False,
    }


def test_partitioned_by_the_bucket_key_and_without_one_by_the_bucket_itself():
    assert partition_fields(KEYED) == (PartitionTransform("id", "bucket", 4),)
    (by_key,) = partition_fields(TableDescriptor(columns(a="INT"), bucket_keys=("a",), num_buckets=3))
    assert by_key.in_iceberg == "bucket[3]"
    assert partition_fields(TableDescriptor(columns(a="INT"), num_buckets=3)) == (PartitionTransform("__bucket"),)


def test_the_partition_keys_come_before_the_bucket():
    of = columns(id="INT NOT NULL", region="STRING NOT NULL", day="CHAR(8) NOT NULL")
    keyed = TableDescriptor(of, ("id", "region", "day"), ("id",), 4, partition_keys=("day", "region"))
    assert partition_fields(keyed) == (
        PartitionTransform("day"),
        PartitionTransform("region"),
        PartitionTransform("id", "bucket", 4),
    )
    log = TableDescriptor(of, num_buckets=2, partition_keys=("region",))
    assert [(field.in_iceberg, field.column) for field in partition_fields(log)] == [
        ("identity", "region"),
        ("identity", "__bucket"),
    ]


@pytest.mark.parametrize(
    ("descriptor", "said"),
    [
        (TableDescriptor(columns(a="INT", b="INT"), bucket_keys=("a", "b")), "exactly one column"),
        (TableDescriptor(columns(a="INT NOT NULL"), primary_key=("a",)), "exactly one column"),
        (TableDescriptor(columns(a="DOUBLE"), bucket_keys=("a",)), "'a' is a DOUBLE"),
        (TableDescriptor(columns(a="INT"), partition_keys=("a",)), "partition key 'a' is INT"),
    ],
)
def test_what_iceberg_cannot_bucket_is_refused(descriptor, said):
    with pytest.raises(FlussTieringError, match=said) as raised:
        partition_fields(descriptor)
    assert raised.value.code is ErrorCode.INVALID_TABLE


def test_a_column_with_a_name_of_fluss_s_own_is_refused():
    with pytest.raises(FlussTieringError, match="'__offset'"):
        schema_json(TableDescriptor(columns(__offset="INT")))


def test_properties_are_prefixed_and_a_primary_key_makes_it_merge_on_read():
    options = {
        "table.datalake.freshness": "30s",
        "iceberg.write.parquet.compression-level": "5",
        # Neither a user's own properties nor the credentials of a catalog belong into the lake table.  # D25
        "owner": "a",
        "table.datalake.iceberg.s3.secret-access-key": "secret",
    }
    theirs = {
        "fluss.table.datalake.freshness": "30s",
        "write.parquet.compression-level": "5",
        "write.metadata.delete-after-commit.enabled": "true",
    }

    assert table_properties(TableDescriptor(columns(a="INT"), properties=options)) == theirs
    assert table_properties(TableDescriptor(KEYED.columns, ("id",), ("id",), 4, options)) == {
        **theirs,
        "write.delete.mode": "merge-on-read",
        "write.update.mode": "merge-on-read",
        "write.merge.mode": "merge-on-read",
    }
    kept = {**options, "iceberg.write.metadata.delete-after-commit.enabled": "false"}
    made = table_properties(TableDescriptor(columns(a="INT"), properties=kept))
    assert made == {**theirs, "write.metadata.delete-after-commit.enabled": "false"}


def check(schema=KEYED_SCHEMA, specs=(KEYED_SPEC,), version=2, *, others=False, table=KEYED) -> dict:
    return check_layout("db.t", LakeLayout(schema, specs, others, version), schema_json(table), partition_fields(table))


def changed(path: str, value, of: dict = KEYED_SCHEMA) -> dict:
    schema = copy.deepcopy(of)
    *way, last = path.split(".")
    place = schema
    for step in way:
        place = place[int(step)] if isinstance(place, list) else place[step]
    place[int(last) if isinstance(place, list) else last] = value
    return schema


FURTHER = {"id": 6, "name": "extra", "required": False, "type": "int"}


# D53
def test_the_layout_passes_and_so_do_changes_that_are_no_obstacle():
    check()
    check(version=3)
    check(changed("fields.1.doc", "somebody's comment"))
    check(changed("fields.1.id", 17))
    check(changed("fields", [FURTHER, *KEYED_SCHEMA["fields"]]))
    check(changed("fields", KEYED_SCHEMA["fields"][::-1]))
    check(changed("fields.4.required", False))


def required(field: dict) -> dict:
    return {**field, "required": True}


@pytest.mark.parametrize(
    ("arguments", "difference", "remedy"),
    [
        ({"schema": changed("fields.1.type", "long")}, "`name` is long, expected string", "drop or rename that column"),
        (
            {"schema": changed("fields.1.name", "label")},
            "the column `name` was renamed to `label`",
            "ALTER TABLE db.t RENAME COLUMN `label` TO `name`",
        ),
        (
            {"schema": changed("fields.1.required", True)},
            "the column `name` is NOT NULL",
            "ALTER TABLE db.t ALTER COLUMN `name` DROP NOT NULL",
        ),
        (
            {"schema": changed("fields", KEYED_SCHEMA["fields"][:4])},
            "the column `__timestamp` timestamptz is missing",
            "ALTER TABLE db.t ADD COLUMN `__timestamp` TIMESTAMP",
        ),
        (
            {"schema": changed("fields", [*KEYED_SCHEMA["fields"], required(FURTHER)])},
            "the further column `extra` is NOT NULL",
            "ALTER TABLE db.t ALTER COLUMN `extra` DROP NOT NULL",
        ),
        (
            {"schema": changed("fields.1.type", {"type": "list", "element": "int", "element-required": True})},
            "the column `name` is list<int required>, expected string",
            "drop or rename that column",
        ),
        (
            {"schema": changed("identifier-field-ids", [])},
            "its identifier fields are [], expected the primary key ['id']",
            "ALTER TABLE db.t SET IDENTIFIER FIELDS `id`",
        ),
        (
            {"specs": [{"fields": [{"name": "id_bucket_8", "transform": "bucket[8]", "source-id": 1}]}]},
            "it is partitioned by ['bucket[8](id)'], expected ['bucket[4](id)']",
            "DROP PARTITION FIELD `id_bucket_8`, then ALTER TABLE db.t ADD PARTITION FIELD bucket(4, `id`)",
        ),
        (
            {"specs": [{"fields": []}, KEYED_SPEC]},
            "it is partitioned by [], expected ['bucket[4](id)']",
            "ALTER TABLE db.t ADD PARTITION FIELD bucket(4, `id`)",
        ),
        ({"others": True}, "some of its files have another partitioning", "rewrite-all => true"),
        ({"version": 1}, "its format version is 1, expected 2 or later", "'format-version' = '2'"),
    ],
)
def test_any_other_difference_is_named_with_the_statement_that_removes_it(arguments, difference, remedy):
    with refused(ErrorCode.LAKE_TABLE_MISMATCH, difference, "db.t", remedy):
        check(**arguments)


NESTED = TableDescriptor(
    columns(
        id="INT NOT NULL",
        d="DECIMAL(9, 2)",
        r="ROW<a INT NOT NULL, `b c` ARRAY<DECIMAL(9, 2)>>",
        m="MAP<STRING NOT NULL, ROW<x DATE> NOT NULL>",
        t="ROW<at TIME(3)>",
    )
)
NESTED_SPEC = {"spec-id": 0, "fields": [{"name": "b", "transform": "identity", "source-id": 6}]}


@pytest.mark.parametrize(
    ("column", "kind", "statement"),
    [
        ("d", "decimal(9, 2)", "ADD COLUMN `d` DECIMAL(9, 2) AFTER `id` (it is null in all rows"),
        (
            "r",
            "struct<a int required, b c list<decimal(9, 2)>>",
            "ADD COLUMN `r` STRUCT<`a`: INT, `b c`: ARRAY<DECIMAL(9, 2)>> AFTER `d` (it is null in all",
        ),
        ("m", "map<string, struct<x date> required>", "ADD COLUMN `m` MAP<STRING, STRUCT<`x`: DATE>> AFTER `r` (it"),
        ("t", "struct<at time>", "add it with Iceberg's own API, since Spark has no such type (it is null in all rows"),
    ],
)
def test_a_missing_column_of_any_type_is_told_with_the_statement_that_adds_it(column, kind, statement):  # D53
    schema = schema_json(NESTED)
    schema["fields"] = [field for field in schema["fields"] if field["name"] != column]
    with pytest.raises(FlussTieringError) as raised:
        check(schema, [NESTED_SPEC], table=NESTED)
    assert f"the column `{column}` {kind} is missing" in raised.value.message
    assert statement in raised.value.message


@pytest.mark.parametrize(
    ("way", "value", "difference"),
    [
        ("fields.2.type.fields.0.type", "long", None),
        ("fields.2.type.fields.0.type", "string", "the column `r`.`a` is string, expected int or a wider type"),
        (
            "fields.2.type.fields.1.type.element",
            "decimal(8, 2)",
            "`r`.`b c`.element is decimal(8, 2), expected decimal(9, 2)",
        ),
        ("fields.2.type.fields.1.required", True, "the column `r`.`b c` is NOT NULL, expected it to be nullable"),
        ("fields.2.type.fields.1.type.element-required", True, "the column `r`.`b c`.element is NOT NULL"),
        ("fields.3.type.value-required", False, None),
        ("fields.3.type.key", "int", "the column `m`.key is int, expected string"),
        ("fields.3.type.value", "date", "the column `m`.value is date, expected struct<x date>"),
        ("fields.3.type.value.fields.0.name", "y", "the column `m`.value.`x` was renamed to `m`.value.`y`"),
        (
            "fields.3.type",
            {"type": "list", "element": "int", "element-required": False},
            "`m` is list<int>, expected map<",
        ),
    ],
)
def test_parts_of_nested_columns_are_looked_at_as_well(way, value, difference):  # D53
    schema = changed(way, value, schema_json(NESTED))
    if difference is None:
        assert check(schema, [NESTED_SPEC], table=NESTED) is NESTED_SPEC
        return
    with pytest.raises(FlussTieringError) as raised:
        check(schema, [NESTED_SPEC], table=NESTED)
    assert difference in raised.value.message


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (["renamed"], "was dropped, renamed to `r`.`renamed`, or added to the Fluss table later; if it was renamed, "),
        (["renamed", "other"], "was dropped, renamed, or added to the Fluss table later; if it was renamed, "),
        ([], "was dropped, or added to the Fluss table later; ALTER TABLE db.t ADD COLUMN `r`.`a` INT FIRST (it is"),
    ],
)
def test_a_field_with_another_id_may_have_been_renamed(fields: list[str], said: str) -> None:
    """Fields of a table to which columns were added have other ids than those of a new table."""
    schema = schema_json(NESTED)
    parts = schema["fields"][2]["type"]["fields"]
    found = parts.pop(0)
    parts += [{**found, "id": 90 + number, "name": name, "required": False} for number, name in enumerate(fields)]
    parts.append({"id": 99, "name": "of another type", "required": False, "type": "date"})
    with pytest.raises(FlussTieringError) as raised:
        check(schema, [NESTED_SPEC], table=NESTED)
    assert f"the column `r`.`a` int is missing: it {said}" in raised.value.message
    rename = (
        "ALTER TABLE db.t RENAME COLUMN `r`.`renamed` TO `a`, which keeps its values; otherwise ALTER TABLE db.t ADD"
    )
    assert (rename in raised.value.message) == bool(fields)


# D53
def test_a_log_table_is_written_with_its_own_partitioning_whatever_the_default_is():
    log = TableDescriptor(columns(a="INT"))
    schema = schema_json(log)
    own = {"spec-id": 0, "fields": [{"name": "__bucket", "transform": "identity", "source-id": 2}]}
    assert check(schema, [{"spec-id": 1, "fields": []}, own], others=True, table=log) is own
    with pytest.raises(FlussTieringError, match="partitioned by"):
        check(schema, [{"spec-id": 1, "fields": []}], table=log)


# D53
@pytest.mark.parametrize(
    ("wanted", "found", "wider"),
    [
        ("int", "long", True),
        ("float", "double", True),
        ("decimal(10, 2)", "decimal(20, 2)", True),
        ("decimal(10, 2)", "decimal(10, 3)", False),
        ("decimal(10, 2)", "decimal(9, 2)", False),
        ("long", "int", False),
        ("int", "double", False),
        ("date", "timestamp", False),
    ],
)
def test_types_that_iceberg_may_widen(wanted, found, wider):
    assert is_wider(wanted, found) is wider


@pytest.mark.parametrize("kind", ["TIME(3)", "ARRAY<TIME(0)>", "ROW<a INT, b MAP<STRING, TIME(6)>>"])
def test_a_table_with_a_time_is_refused_where_spark_reads_it(kind):
    plain = TableInfo(1, TablePath("db", "t"), 1, KEYED, 0, {})
    refuse_times(plain, "never said")
    timed = TableDescriptor((*KEYED.columns, Column("at", DataType.parse(kind))), ("id",), ("id",), 4)
    with pytest.raises(
        FlussTieringError, match=r"table db.t has the column 'at' of type .*; use another reader"
    ) as raised:
        refuse_times(TableInfo(1, TablePath("db", "t"), 1, timed, 0, {}), "use another reader")
    assert raised.value.code is ErrorCode.INVALID_REQUEST
    assert str(DataType.parse(kind)) in raised.value.message


def test_a_lake_table_is_legacy_or_clean_or_refused_by_name():  # E7
    names = {"id", "name"}
    assert is_clean("db.t", names)
    assert not is_clean("db.t", names | set(SYSTEM_COLUMNS))
    for left in itertools.chain(itertools.combinations(SYSTEM_COLUMNS, 1), itertools.combinations(SYSTEM_COLUMNS, 2)):
        with refused(
            ErrorCode.LAKE_TABLE_MISMATCH,
            f"db.t has the system columns {', '.join(left)} and lacks",
            "ALTER TABLE db.t ADD COLUMNS (",
        ):
            is_clean("db.t", names | set(left))


def test_a_clean_lake_table_has_the_columns_of_the_user_and_no_partition_for_a_bucket():
    assert schema_json(KEYED, clean=True) == {**KEYED_SCHEMA, "fields": KEYED_SCHEMA["fields"][:2]}

    def of(descriptor: TableDescriptor) -> list[str]:
        table = TableInfo(1, TablePath("db", "t"), 1, descriptor, 0)
        return [field.column for field in partition_of(table, clean=True)]

    assert of(KEYED) == []
    log = TableDescriptor(columns(a="INT", day="STRING"), num_buckets=3, partition_keys=("day",))
    assert of(log) == ["day"]
    assert of(TableDescriptor(columns(a="INT"), num_buckets=3)) == []


def test_a_table_whose_number_of_buckets_was_changed_is_refused_if_the_lake_has_one_number():
    rescaled = TableInfo(1, TablePath("db", "t"), 1, KEYED, 0, bucket_count_epoch=2)
    with refused(ErrorCode.INVALID_TABLE, "db.t was changed (bucket count epoch 2)"):
        partition_of(rescaled)
    log = TableInfo(1, TablePath("db", "t"), 1, TableDescriptor(columns(a="INT")), 0, bucket_count_epoch=2)
    assert partition_of(log) == (PartitionTransform("__bucket"),)
