import dataclasses
from pathlib import Path
from typing import Any

import pytest
from embedded_tables import PATH, TurnedClock, columns, kv_table, log_table, opened
from refusals import refused

from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.table import Column, DataType, TableDescriptor, TablePath
from fluss_tiering.model.table_options import has_clean_layout
from fluss_tiering.storage.embedded.validation import altered

EVERY_TYPE = columns(
    b="BOOLEAN",
    i="INT NOT NULL",
    l="BIGINT",
    d="DOUBLE NOT NULL",
    m="DECIMAL(38, 10)",
    s="STRING",
    day="DATE",
    t="TIMESTAMP(9)",
    z="TIMESTAMP_LTZ(3) NOT NULL",
)
LAYOUT = "table.datalake.layout"
LEGACY = {LAYOUT: "legacy"}


def test_a_table_gets_the_clean_layout_when_it_is_created_and_one_from_before_stays_legacy(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        created = storage.create_table(PATH, log_table())
        assert created.descriptor.properties[LAYOUT] == "clean"
        for asked, layout in ((LEGACY, "legacy"), ({}, "clean")):
            assert storage.alter_table(PATH, asked).descriptor.properties == {LAYOUT: layout}
    before = log_table()
    changed = altered(before, {"table.datalake.freshness": "1min"})
    for old in (before, changed):
        assert not has_clean_layout(old.properties)


def test_a_table_is_the_same_after_a_restart(tmp_path: Path) -> None:
    descriptor = TableDescriptor(
        (*EVERY_TYPE, Column("note", DataType.parse("STRING"), "what the customer said")),
        primary_key=("i", "z"),
        bucket_keys=("i",),
        num_buckets=3,
        properties={**LEGACY, "table.datalake.freshness": "1min", "table.log.arrow.compression.type": "LZ4_FRAME"},
        comment="orders of the shop",
    )
    with opened(tmp_path, clock=TurnedClock(1_234)) as storage:
        created = storage.create_table(PATH, descriptor)
        other = storage.create_table(TablePath("other", "orders"), log_table())
    with opened(tmp_path) as storage:
        assert storage.table(PATH) == created
        assert storage.table_by_id(other.table_id) == other
        assert storage.tables() == [other, created]
    assert created.descriptor == descriptor
    assert created.created_time == 1_234
    assert created.lake_catalog_properties == {}


def test_the_primary_key_without_the_partition_key_is_the_bucket_key(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        table = storage.create_table(PATH, TableDescriptor(columns(id="INT NOT NULL"), primary_key=("id",)))
        assert table.descriptor.bucket_keys == ("id",)
        key = columns(id="INT NOT NULL", yes="BOOLEAN NOT NULL", day="STRING NOT NULL")
        descriptor = TableDescriptor(key, primary_key=("id", "yes", "day"), partition_keys=("day",))
        assert storage.create_table(TablePath("shop", "lines"), descriptor).descriptor.bucket_keys == ("id", "yes")
        table = storage.create_table(TablePath("shop", "log"), TableDescriptor(columns(id="INT NOT NULL")))
        assert table.descriptor.bucket_keys == ()


@pytest.mark.parametrize("text", ["TIMESTAMP(6) NOT NULL", "TIMESTAMP_LTZ(6) NOT NULL"])
def test_a_timestamp_in_a_key_may_have_microseconds(tmp_path: Path, text: str) -> None:
    with opened(tmp_path) as storage:
        table = storage.create_table(PATH, TableDescriptor(columns(t=text), primary_key=("t",)))
        assert table.descriptor.bucket_keys == ("t",)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"columns": ()}, "has no columns"),
        ({"columns": columns(a="INT") * 2}, "two columns are named 'a'"),
        ({"columns": (Column("", DataType.parse("INT")),)}, "has no name"),
        ({"columns": columns(__offset="BIGINT")}, "'__offset' is reserved"),
        ({"columns": columns(_change_type="STRING")}, "'_change_type' is reserved"),
        # Spark reads no lake table that has it.
        ({"columns": columns(_pos="BIGINT")}, "'_pos' is reserved"),
        ({"columns": columns(_FILE="STRING")}, "'_FILE' is reserved"),  # E5
        ({"columns": columns(_Pos="BIGINT")}, "'_Pos' is reserved"),
        ({"columns": columns(__Offset="BIGINT")}, "'__Offset' is reserved"),
        ({"columns": columns(_Change_Type="STRING")}, "'_Change_Type' is reserved"),
        ({"columns": columns(**{"r": "ROW<x ROW<y INT>>", "r.x.y": "INT"})}, "'r.x.y' is that of a field in another"),
        ({"primary_key": ("x",)}, "'x', which is no column"),
        ({"primary_key": ("i", "i")}, "'i' twice"),
        ({"primary_key": ("l",)}, "'l' is nullable"),
        ({"primary_key": ("d",)}, "'d' is DOUBLE NOT NULL"),
        (
            {"columns": columns(t="TIMESTAMP(7) NOT NULL"), "primary_key": ("t",)},
            "primary key column 't' is TIMESTAMP(7) NOT NULL: expected a precision of at most 6",
        ),
        (
            {"columns": columns(i="INT NOT NULL", z="TIMESTAMP_LTZ(9) NOT NULL"), "primary_key": ("i", "z")},
            "primary key column 'z' is TIMESTAMP_LTZ(9) NOT NULL: expected a precision of at most 6",
        ),
        ({"bucket_keys": ("t",)}, "bucket key column 't' is TIMESTAMP(9): expected a precision of at most 6"),
        (
            {"columns": columns(i="INT NOT NULL", z="INT NOT NULL"), "primary_key": ("i", "z"), "properties": LEGACY},
            "the bucket key (i, z), and a legacy lake table is partitioned by the bucket of one column",
        ),
        ({"primary_key": ("i", "z"), "bucket_keys": ("l",)}, "'l' is not part of the primary key"),
        ({"bucket_keys": ("i", "d")}, "'d': a column of type DOUBLE NOT NULL cannot be the bucket key"),
        ({"bucket_keys": ("x",)}, "'x', which is no column"),
        ({"bucket_keys": ("d",)}, "'d': a column of type DOUBLE NOT NULL cannot be the bucket key"),
        ({"bucket_keys": ("b",)}, "expected one of TINYINT"),
        ({"num_buckets": 0}, "0 buckets: expected 1 to 1024"),
        ({"num_buckets": 1025}, "1025 buckets: expected 1 to 1024"),
        ({"properties": {"table.log.arrow.compression.type": "GZIP"}}, "'GZIP': expected one of NONE, LZ4_FRAME, ZSTD"),
        ({"properties": {"table.changelog.image": "WAL"}}, "table.changelog.image is 'WAL': expected FULL"),
        ({"properties": {"table.kv.value-layout-version": "2"}}, "table.kv.value-layout-version is '2': expected 1"),
        ({"properties": {"table.kv.ttl": "1h"}}, "'table.kv.ttl' is not a table option"),
        ({"properties": {"bucket.num": "4"}}, "'bucket.num' is not a table option: expected it in the definition"),
        ({"properties": {"bucket.key": "k"}}, "as its bucket key (--bucket-key)"),
        ({"auto_increment_columns": ("l",)}, "the columns l are to be numbered: expected none"),
        ({"properties": {"table.merge-engine": "first_row"}}, "table.merge-engine is set"),
    ],
)
def test_an_impossible_table_is_refused_and_nothing_is_made(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with opened(tmp_path) as storage:
        with refused(ErrorCode.INVALID_TABLE, message, "expected"):
            storage.create_table(PATH, dataclasses.replace(TableDescriptor(EVERY_TYPE), **changes))
        assert storage.tables() == []
    assert list((tmp_path / "tables").iterdir()) == []


PARQUET = "iceberg.write.parquet.compression-"
BLOOM = "iceberg.write.parquet.bloom-filter-"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"columns": columns(i="INT", i_bucket="INT"), "bucket_keys": ("i",)}, "'i_bucket' is the name of Iceberg's"),
        ({"columns": columns(i="INT NOT NULL", i_bucket="INT"), "primary_key": ("i",)}, "bucket key 'i'"),
        ({"columns": columns(name="INT", Name="INT")}, "'name' and 'Name'"),
        ({"columns": (Column("a\0b", DataType.parse("INT")),)}, "'a\\x00b' is blank or has control characters"),
        ({"columns": (Column(" ", DataType.parse("INT")),)}, "' ' is blank"),
        *(
            ({"properties": {"iceberg.write.target-file-size-bytes": value}}, f"target-file-size-bytes is {value!r}")
            for value in ("128MB", "0", "-1", "", "1_000", "9" * 19)
        ),
        *(
            (
                {"properties": {f"iceberg.{name}": value}},
                f"{name} is {value!r}: expected a whole number from 1 to {most}",
            )
            for name, value, most in (
                ("history.expire.max-snapshot-age-ms", "-1", 2**63 - 1),
                ("history.expire.max-snapshot-age-ms", "9223372036854775808", 2**63 - 1),
                ("history.expire.min-snapshots-to-keep", "two", 2**31 - 1),
                ("history.expire.min-snapshots-to-keep", "2147483648", 2**31 - 1),
                ("commit.manifest.target-size-bytes", "8MB", 2**63 - 1),
                ("write.metadata.previous-versions-max", "0", 2**31 - 1),
                ("write.metadata.previous-versions-max", "2147483648", 2**31 - 1),
            )
        ),
        *(
            ({"properties": {f"iceberg.{name}": value}}, f"{name} is {value!r}: expected a whole number")
            for name, value in (
                ("commit.retry.num-retries", "abc"),
                ("commit.retry.num-retries", "-1"),
                ("commit.retry.total-timeout-ms", "30min"),
                ("commit.manifest.target-size-bytes", "9" * 19),
                ("write.metadata.previous-versions-max", "2147483648"),
            )
        ),
        ({"properties": {f"{PARQUET}codec": "lzma"}}, "codec is 'lzma': expected one of zstd, gzip"),
        ({"properties": {f"{PARQUET}codec": "none"}}, "codec is 'none': expected one of zstd, gzip"),
        ({"properties": {f"{PARQUET}level": "high"}}, "level is 'high': expected a whole number from"),
        ({"properties": {f"{PARQUET}level": "10", f"{PARQUET}codec": "gzip"}}, "from 1 to 9 for gzip"),
        ({"properties": {f"{PARQUET}level": "3", f"{PARQUET}codec": "snappy"}}, "snappy has no levels"),
        ({"properties": {"iceberg.format-version": "1"}}, "iceberg.format-version is '1': expected 2 or 3"),
        ({"properties": {"iceberg.format-version": "4"}}, "iceberg.format-version is '4': expected 2 or 3"),
        (
            {"properties": {"table.datalake.delete-files": "positions"}},
            "table.datalake.delete-files is 'positions': expected equality or position",
        ),
        *(
            ({"properties": {key: value}}, f"{key} is {value!r} for a table without a primary key")
            for value in ("position", "equality")
            for key in ("table.datalake.delete-files", "fluss.table.datalake.delete-files")
        ),
        (
            {"properties": {"fluss.table.datalake.delete-files": "positions"}},
            "fluss.table.datalake.delete-files is 'positions': expected equality or position",
        ),
        (
            {"properties": {"fluss.table.datalake.delete-file": "position"}},
            "'fluss.table.datalake.delete-file' is not a table option",
        ),
        ({"properties": {f"{BLOOM}enabled.column.i": "yes"}}, "enabled.column.i is 'yes': expected true or false"),
        (
            {"properties": {f"{BLOOM}fpp.column.a.b": "1"}},
            "fpp.column.a.b is '1': expected a number above 0 and below 1",
        ),
        (
            {"properties": {f"{BLOOM}ndv.column.i": "0"}},
            "ndv.column.i is '0': expected a whole number of values above 0",
        ),
        (
            {"properties": {f"{BLOOM}max-bytes": "1mb"}},
            "max-bytes is '1mb': expected a whole number of bytes, 32 or more",
        ),
        ({"properties": {"iceberg.write.format.default": "orc"}}, "write.format.default is 'orc': expected parquet"),
        (
            {
                "primary_key": ("i", "z"),
                "bucket_keys": ("z",),
                "partition_keys": ("i",),
                "properties": {"table.datalake.delete-files": "equality"},
            },
            "delete-files is 'equality', while the partition key 'i' is INT NOT NULL",
        ),
        ({"properties": {**LEGACY, "table.datalake.sort-by": "i"}}, "sort-by is 'i', while table.datalake.layout is"),
        *(
            ({"properties": {f"table.datalake.{name}": "a b"}}, f"table.datalake.{name} is 'a b': expected 1 to 200")
            for name in ("table-name", "commit-branch")
        ),
    ],
)
def test_a_table_that_could_never_be_tiered_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with opened(tmp_path) as storage:
        with refused(ErrorCode.INVALID_TABLE, message, "expected"):
            storage.create_table(PATH, dataclasses.replace(TableDescriptor(EVERY_TYPE), **changes))
        assert storage.tables() == []


@pytest.mark.parametrize("codec", ["zstd", "GZIP", "snappy", "lz4", "uncompressed"])
def test_properties_that_tiering_can_write_are_taken(tmp_path: Path, codec: str) -> None:
    properties = {
        **LEGACY,
        f"{PARQUET}codec": codec,
        "iceberg.write.target-file-size-bytes": "1048576",
        "iceberg.history.expire.max-snapshot-age-ms": "1",
        "iceberg.format-version": "2",
        "iceberg.write.format.default": "parquet",
        f"{BLOOM}enabled.column.i": "TRUE",
        f"{BLOOM}fpp.column.i": "1e-3",
        f"{BLOOM}ndv.column.i": "1000",
        f"{BLOOM}max-bytes": "32",
    }
    table = TableDescriptor(columns(i="INT", bucket="INT", j_bucket="INT"), bucket_keys=("i",), properties=properties)
    with opened(tmp_path) as storage:
        assert storage.create_table(PATH, table).descriptor == table


def test_an_existing_table_is_not_made_again(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        created = storage.create_table(PATH, log_table())
        with refused(ErrorCode.TABLE_ALREADY_EXIST, "shop.orders", "drop it first"):
            storage.create_table(PATH, kv_table())
        assert storage.tables() == [created]


def test_no_table_stands_in_the_way_of_the_tiering_status(tmp_path: Path) -> None:  # S27
    with opened(tmp_path) as storage:
        with refused(ErrorCode.INVALID_TABLE, "sys.lake_tiering_status", "take another one"):
            storage.create_table(TablePath("sys", "lake_tiering_status"), log_table())
        assert storage.tables() == []
        assert storage.create_table(TablePath("sys", "other"), log_table()).path == TablePath("sys", "other")


def test_an_unknown_or_dropped_table_is_named(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        created = storage.create_table(PATH, kv_table())
        folder = tmp_path / "tables" / "shop" / f"orders-{created.table_id}"
        assert folder.is_dir()
        assert storage.drop_table(PATH) == created
        assert not folder.exists()
        for call in (storage.drop_table, storage.table, storage.buckets, storage.take_kv_snapshots):
            with refused(ErrorCode.TABLE_NOT_EXIST, "shop.orders"):
                call(PATH)
        with refused(ErrorCode.TABLE_NOT_EXIST, str(created.table_id)):
            storage.table_by_id(created.table_id)
    with opened(tmp_path) as storage:
        assert storage.tables() == []


def test_nested_types_make_no_keys(tmp_path: Path) -> None:
    nested = columns(id="INT NOT NULL", tags="ARRAY<STRING> NOT NULL")
    made_from = TableDescriptor(nested, primary_key=("id",))
    with opened(tmp_path) as storage:
        with refused(ErrorCode.INVALID_TABLE, "primary key", "'tags'", "ARRAY<STRING>"):
            storage.create_table(PATH, dataclasses.replace(made_from, primary_key=("id", "tags")))
        with refused(ErrorCode.INVALID_TABLE, "bucket key", "'tags'"):
            storage.create_table(PATH, TableDescriptor(nested, bucket_keys=("tags",)))
        with refused(ErrorCode.INVALID_TABLE, "partition key", "'tags'"):
            storage.create_table(PATH, TableDescriptor(nested, partition_keys=("tags",)))
        assert storage.create_table(PATH, made_from).descriptor.columns == nested
    with opened(tmp_path) as storage:
        assert storage.table(PATH).descriptor.columns == nested
