import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from cases import cases
from fluss_tiering.model.data_type import NESTED, WITH_LENGTH, WITH_PRECISION, Field
from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.table import Column, DataType, DataTypeRoot, TableDescriptor, TablePath
from fluss_tiering.storage.fluss.rpc.table_json import TableInfo, table_from_json, table_to_json

PATH = TablePath("db", "t")


def read(text: bytes) -> TableInfo:
    return table_from_json(text, path=PATH, table_id=3, schema_id=1, created_time=5)


def data_types() -> st.SearchStrategy[DataType]:
    plain = st.sampled_from(sorted(set(DataTypeRoot) - WITH_PRECISION - WITH_LENGTH - NESTED))
    decimals = st.integers(1, 38).flatmap(
        lambda precision: st.builds(
            DataType, st.just(DataTypeRoot.DECIMAL), st.booleans(), st.just(precision), st.integers(0, precision)
        )
    )
    times = st.builds(
        DataType,
        st.sampled_from([DataTypeRoot.TIME, DataTypeRoot.TIMESTAMP, DataTypeRoot.TIMESTAMP_LTZ]),
        st.booleans(),
        st.integers(0, 9),
    )
    with_length = st.builds(DataType, st.sampled_from(sorted(WITH_LENGTH)), st.booleans(), length=st.integers(1, 99))
    scalars = st.one_of(st.builds(DataType, plain, st.booleans()), decimals, times, with_length)
    return st.recursive(scalars, nested, max_leaves=5)


def nested(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
    """Return types that contain these types."""
    keys = inner.map(lambda kind: replace(kind, nullable=False))
    arrays = st.tuples(st.builds(Field, st.just("element"), inner))
    maps = st.tuples(st.builds(Field, st.just("key"), keys), st.builds(Field, st.just("value"), inner))
    rows = st.lists(st.tuples(inner, st.none() | st.text()), min_size=1, max_size=3).map(
        lambda parts: tuple(Field(f"f{number}", *part) for number, part in enumerate(parts))
    )
    return st.one_of(
        st.builds(DataType, st.just(root), st.booleans(), fields=fields)
        for root, fields in ((DataTypeRoot.ARRAY, arrays), (DataTypeRoot.MAP, maps), (DataTypeRoot.ROW, rows))
    )


@given(types=st.lists(data_types(), min_size=1, max_size=8), comment=st.none() | st.text(), partitioned=st.booleans())
@pytest.mark.slow
def test_a_table_comes_back_from_its_json(types: list[DataType], comment: str | None, partitioned: bool) -> None:
    columns = tuple(Column(f"c{index}", kind, comment) for index, kind in enumerate(types))
    written = TableDescriptor(
        columns=columns,
        primary_key=("c0",),
        bucket_keys=("c0",),
        num_buckets=7,
        properties={"table.datalake.enabled": "true", "iceberg.write.x": "y"},
        comment=comment,
        auto_increment_columns=("c1",) if len(columns) > 1 else (),
        partition_keys=("c0",) if partitioned else (),
    )
    text = table_to_json(written)
    assert json.loads(text)["properties"] == {"table.datalake.enabled": "true"}
    assert json.loads(text)["custom_properties"] == {"iceberg.write.x": "y"}
    table = read(text)
    assert table.descriptor == written
    assert table.created_time == 5


def test_the_lake_catalog_is_what_the_cluster_says() -> None:
    properties = {"table.datalake.iceberg.type": "jdbc", "table.datalake.iceberg.jdbc.user": "me", "iceberg.x": "y"}
    columns = (Column("c", DataType.parse("INT")),)
    table = read(table_to_json(TableDescriptor(columns=columns, properties=properties)))
    assert table.lake_catalog_properties == {"type": "jdbc", "jdbc.user": "me"}


def test_a_type_that_is_not_there_yet_names_its_column() -> None:
    text = json.loads(table_to_json(TableDescriptor(columns=(Column("tags", DataType.parse("INT")),))))
    text["schema"]["columns"][0]["data_type"] = {"type": "ARRAY", "element_type": {"type": "VARIANT"}}
    with refused(ErrorCode.INVALID_TABLE, "'tags'", "db.t", "VARIANT", "BIGINT"):
        read(json.dumps(text).encode())


def test_what_is_no_table_is_refused() -> None:
    for text in (b"", b"[]", b"{}", b"\xff", b'{"schema": {"columns": [{}]}}', b'{"schema": 1}'):
        with refused(ErrorCode.CORRUPT_DATA, "db.t"):
            read(text)


@cases(
    ("text", "expected"),
    [
        ("INT NOT NULL", {"type": "INTEGER", "nullable": False}),
        ("CHAR(3)", {"type": "CHAR", "length": 3}),
        ("BINARY(16)", {"type": "BINARY", "length": 16}),
        ("TIME(3)", {"type": "TIME_WITHOUT_TIME_ZONE", "precision": 3}),
        ("TIMESTAMP_LTZ(3)", {"type": "TIMESTAMP_WITH_LOCAL_TIME_ZONE", "precision": 3}),
        ("DECIMAL(5, 2)", {"type": "DECIMAL", "precision": 5, "scale": 2}),
        (
            "ARRAY<INT NOT NULL> NOT NULL",
            {"type": "ARRAY", "nullable": False, "element_type": {"type": "INTEGER", "nullable": False}},
        ),
        (
            "MAP<STRING, ROW<a INT, b BYTES 'said'>>",
            {
                "type": "MAP",
                "key_type": {"type": "STRING", "nullable": False},
                "value_type": {
                    "type": "ROW",
                    "fields": [
                        {"name": "a", "field_type": {"type": "INTEGER"}, "field_id": 1},
                        {"name": "b", "field_type": {"type": "BYTES"}, "description": "said", "field_id": 2},
                    ],
                },
            },
        ),
    ],
)
def test_types_are_written_as_fluss_writes_them(text: str, expected: dict[str, object]) -> None:
    table = json.loads(table_to_json(TableDescriptor(columns=(Column("c", DataType.parse(text)),))))
    assert table["schema"]["columns"] == [{"name": "c", "data_type": expected, "id": 0}]
