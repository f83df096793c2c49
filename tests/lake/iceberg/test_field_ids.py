"""Parquet files carry Iceberg's field ids. pyiceberg says where they belong."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from fluss_tiering.formats.micros import lake_type
from fluss_tiering.lake.iceberg.field_ids import with_field_ids
from fluss_tiering.lake.iceberg.layout import schema_json
from fluss_tiering.model.table import Column, DataType, TableDescriptor

TYPES = [
    "BOOLEAN",
    "INT",
    "BIGINT NOT NULL",
    "DOUBLE",
    "STRING",
    "BYTES",
    "DATE",
    "TIMESTAMP(3)",
    "TIMESTAMP_LTZ(6)",
    "DECIMAL(9, 2)",
    "ARRAY<INT>",
    "ARRAY<STRING NOT NULL> NOT NULL",
    "MAP<STRING, BIGINT>",
    "MAP<INT NOT NULL, ROW<a INT, b ARRAY<DOUBLE>> NOT NULL>",
    "ROW<a INT NOT NULL, b ROW<c STRING, d MAP<STRING, ARRAY<DATE>>>>",
]


def ids_of(field: pa.Field) -> Any:
    """Return name, id and nullability of a field and of all its parts. Readers find columns by these alone."""
    kind = field.type
    parts: list[pa.Field] = []
    if pa.types.is_struct(kind):
        parts = [kind.field(number) for number in range(kind.num_fields)]
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        parts = [kind.value_field]
    elif pa.types.is_map(kind):
        parts = [kind.key_field, kind.item_field]
    return field.name, field.metadata[b"PARQUET:field_id"], field.nullable, [ids_of(part) for part in parts]


@pytest.mark.parametrize("kind", TYPES)
def test_each_part_of_a_column_has_the_id_that_iceberg_gave_it(kind: str):
    column = Column("c", DataType.parse(kind))
    schema = schema_json(TableDescriptor((Column("first", DataType.parse("INT")), column)))
    wanted = schema_to_pyarrow(Schema.model_validate(schema), include_field_ids=True).field("c")

    found = with_field_ids(schema["fields"][1], lake_type(column.data_type))

    assert ids_of(found) == ids_of(wanted)
    if not pa.types.is_nested(found.type) and not pa.types.is_string(found.type) and not pa.types.is_binary(found.type):
        assert found.type == wanted.type


@pytest.mark.parametrize(
    ("iceberg", "kind", "written"),
    [
        ("long", pa.int32(), pa.int64()),
        ("double", pa.float32(), pa.float64()),
        ("decimal(12, 2)", pa.decimal128(9, 2), pa.decimal128(12, 2)),
        ("decimal(12,2)", pa.decimal128(9, 2), pa.decimal128(12, 2)),
        ("long", pa.int64(), pa.int64()),
        ("int", pa.int32(), pa.int32()),
        ("float", pa.float32(), pa.float32()),
        ("string", pa.string(), pa.string()),
    ],
)
def test_values_are_written_in_the_type_that_a_user_has_widened_the_column_to(iceberg, kind, written):
    field = {"name": "c", "id": 7, "type": iceberg, "required": False}
    assert with_field_ids(field, kind).type == written


def test_a_struct_may_have_further_fields_in_any_order():
    struct = {
        "type": "struct",
        "fields": [
            {"id": 12, "name": "new", "type": "string", "required": False},
            {"id": 11, "name": "b", "type": "long", "required": False},
            {"id": 10, "name": "a", "type": "int", "required": True},
        ],
    }
    kind = pa.struct([("a", pa.int32()), ("b", pa.int32())])
    found = with_field_ids({"name": "s", "id": 1, "type": struct, "required": True}, kind)
    assert ids_of(found) == ("s", b"1", False, [("a", b"10", False, []), ("b", b"11", True, [])])
    assert found.type.field("b").type == pa.int64()
