"""The places of rows and of data files, for each way in which a lake table is partitioned."""

from collections.abc import Sequence
from typing import Any

import pytest
from table_support import PATH

from fluss_tiering.lake.files import ANY_BUCKET, LiveDataFile
from fluss_tiering.lake.iceberg.placement import Placement
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, DataType, TableDescriptor, TableInfo

SCHEMA = {"fields": [{"id": 1, "name": "id"}, {"id": 2, "name": "day"}, {"id": 3, "name": "at"}]}
BY_DAY = ("identity", 2)
BY_HOUR = ("hour", 3)


def spec(*fields: tuple[str, int]) -> dict[str, Any]:
    return {"fields": [{"transform": transform, "source-id": source} for transform, source in fields]}


def placement(
    *specs: dict[str, Any],
    by_bucket: bool = False,
    by_rows: bool = False,
    key: Sequence[str] = ("id", "day"),
    partition_keys: Sequence[str] = ("day",),
    day: str = "STRING",
) -> Placement:
    kinds = {"id": "INT NOT NULL", "day": f"{day} NOT NULL", "at": "TIMESTAMP(3)"}
    columns = tuple(Column(name, DataType.parse(kind)) for name, kind in kinds.items())
    descriptor = TableDescriptor(columns, tuple(key), partition_keys=tuple(partition_keys))
    table = TableInfo(7, PATH, 1, descriptor, 0, {"name": "lake"})
    return Placement(table, SCHEMA, specs or (spec(BY_DAY),), 0, by_bucket=by_bucket, by_rows=by_rows)


def test_the_place_of_rows() -> None:
    two = spec(BY_DAY, BY_HOUR)
    cases = {
        "by bucket": (placement(by_bucket=True), (3, ("mo",))),
        "a log": (placement(key=()), (3, ("mo",))),
        "by partition": (placement(), (ANY_BUCKET, ("mo",))),
        "by rows": (placement(two, by_rows=True), (ANY_BUCKET, ("mo",))),
        "by rows, once otherwise": (placement(two, spec(BY_HOUR), by_rows=True), (ANY_BUCKET, ())),
        "by rows, keys not first": (placement(spec(BY_HOUR, BY_DAY), by_rows=True), (ANY_BUCKET, ())),
        "by rows, keys of days": (placement(two, by_rows=True, day="DATE"), (ANY_BUCKET, ())),
        "by rows, no keys": (placement(spec(BY_HOUR), by_rows=True, partition_keys=()), (ANY_BUCKET, ())),
    }
    assert {case: made.place(3, ("mo",)) for case, (made, _) in cases.items()} == {
        case: place for case, (_, place) in cases.items()
    }


def test_the_place_of_a_data_file() -> None:
    file = LiveDataFile("f.parquet", ("mo",), 1)
    assert placement().place_of(file) == placement().place_for_deletes(file) == (ANY_BUCKET, ("mo",))
    with_bucket = LiveDataFile("f.parquet", ("mo", 3), 1)
    assert placement(by_bucket=True).place_of(with_bucket) == (3, ("mo",))
    others = {
        "another spec": LiveDataFile("f.parquet", ("mo",), 1, spec_id=1),
        "no Parquet": LiveDataFile("f.orc", ("mo",), 1, file_format="ORC"),
        "no value": LiveDataFile("f.parquet", (None,), 1),
    }
    assert {case: placement().place_of(each) for case, each in others.items()} == dict.fromkeys(others)


def test_the_place_of_a_data_file_whose_partition_follows_from_its_rows() -> None:
    made = placement(spec(BY_DAY, BY_HOUR), by_rows=True)
    older = LiveDataFile("f.parquet", ("mo", None), 1, spec_id=1)
    assert made.place_for_deletes(older) == (ANY_BUCKET, ("mo",))
    assert made.place_of(older) is None
    with pytest.raises(FlussTieringError, match="is no Parquet file") as raised:
        made.place_for_deletes(LiveDataFile("f.orc", ("mo", 1), 1, file_format="ORC"))
    assert raised.value.code is ErrorCode.LAKE_TABLE_MISMATCH
    assert "CALL `lake`.system.rewrite_data_files(table => 'db.t', options" in raised.value.message
