"""The data files that executors write, and Iceberg's field ids in them. These tests need no catalog."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

import fluss_tiering.lake.iceberg.parquet as writing
from fluss_tiering.formats.micros import lake_type
from fluss_tiering.lake.files import FileContent, FileMetrics, LakeFile, NotedPlace
from fluss_tiering.lake.iceberg.field_ids import with_field_ids
from fluss_tiering.lake.iceberg.layout import schema_json
from fluss_tiering.lake.iceberg.parquet import ParquetFileWriter, write_file_without_rows
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import BUCKET_COLUMN, OFFSET_COLUMN, TIMESTAMP_COLUMN, Column, DataType, TableDescriptor

SYSTEM_FIELDS = (
    pa.field(BUCKET_COLUMN, pa.int32()),
    pa.field(OFFSET_COLUMN, pa.int64()),
    pa.field(TIMESTAMP_COLUMN, pa.timestamp("us", "UTC")),
)


@pytest.mark.parametrize("zone", [None, "UTC"])
@pytest.mark.parametrize("with_nulls", [False, True])
def test_nanoseconds_are_floored_to_microseconds_before_the_epoch_too(
    tmp_path: Path, zone: str | None, with_nulls: bool
) -> None:
    nanos = [-1, -1001, -1000, 0, 999, 1000, -(2**63) + 1]
    micros = [-1, -2, -1, 0, 0, 1, -9223372036854776]
    schema = pa.schema(
        {
            "t": pa.timestamp("us", zone),
            BUCKET_COLUMN: pa.int32(),
            OFFSET_COLUMN: pa.int64(),
            TIMESTAMP_COLUMN: pa.timestamp("us", "UTC"),
        }
    )
    values = pa.array([*nanos, None] if with_nulls else nanos, pa.timestamp("ns"))
    count = len(values)
    piece = ParquetFileWriter(schema, None, ("zstd", None), 1 << 20, {}).open_piece(0, str(tmp_path / "piece"), 0)
    # A slice, since a batch read from a log is one.
    rows = pa.record_batch([pa.concat_arrays([values[:1], values])], names=["t"]).slice(1)
    piece.write(rows, np.arange(count), np.zeros(count, np.int64))
    (file,) = piece.close()
    written = pq.read_table(file.location).column("t")
    assert written.cast(pa.int64()).to_pylist() == ([*micros, None] if with_nulls else micros)


ROWS_IN_ROWS = pa.struct(
    [
        pa.field("x", pa.int32(), nullable=False),
        pa.field("s", pa.string(), nullable=False),
        pa.field("yes", pa.bool_(), nullable=False),
        pa.field("list", pa.list_(pa.field("element", pa.int64(), nullable=False)), nullable=False),
        pa.field("map", pa.map_(pa.string(), pa.field("value", pa.binary(), nullable=False)), nullable=False),
        pa.field("deep", pa.struct([pa.field("d", pa.decimal128(9, 2), nullable=False)]), nullable=False),
        pa.field("maybe", pa.struct([pa.field("d", pa.date32(), nullable=False)])),
    ]
)
FULL_ROW = {
    "x": 1,
    "s": "a",
    "yes": True,
    "list": [1, 2],
    "map": [("k", b"v")],
    "deep": {"d": Decimal("1.23")},
    "maybe": {"d": dt.date(2024, 2, 29)},
}
LESS = {**FULL_ROW, "list": [], "map": [], "maybe": None}


# D42
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (ROWS_IN_ROWS, [FULL_ROW, None, LESS, None]),
        (pa.list_(ROWS_IN_ROWS), [[FULL_ROW, None], None, [], [None, LESS]]),
        (pa.map_(pa.int32(), ROWS_IN_ROWS), [[(1, FULL_ROW), (2, None)], None, [], [(3, LESS)]]),
        (pa.struct([pa.field("r", ROWS_IN_ROWS)]), [{"r": FULL_ROW}, {"r": None}, None, {"r": LESS}]),
        (pa.struct([pa.field("r", ROWS_IN_ROWS, nullable=False)]), [{"r": FULL_ROW}, None, {"r": LESS}, None]),
        (pa.list_(pa.map_(pa.string(), pa.list_(ROWS_IN_ROWS))), [[[("k", [None, LESS])]], None, [None], []]),
    ],
    ids=["row", "list", "map", "row in row", "row in NOT NULL row", "depth 3"],
)
def test_a_null_row_may_have_fields_that_are_not_null(tmp_path: Path, kind: pa.DataType, values: list[Any]) -> None:
    whole = pa.array(values, kind)
    # A decoder may put nulls into the fields of a null row; a batch from a log is a slice.
    for number, rows in enumerate([whole, with_nulls_below(whole), pa.concat_arrays([whole, whole]).slice(4)]):
        written = write_column(tmp_path / str(number), rows)
        assert written.to_pylist() == values


def with_nulls_below(array: pa.Array) -> pa.Array:
    """Return the same values, with nulls in the fields of each null row."""
    kind, nulls = array.type, array.is_null()
    if pa.types.is_struct(kind):
        return pa.StructArray.from_arrays(
            [with_nulls_below(part) for part in array.flatten()], fields=list(kind), mask=nulls
        )
    if pa.types.is_map(kind):
        return pa.MapArray.from_arrays(array.offsets, array.keys, with_nulls_below(array.items), kind, mask=nulls)
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(array.offsets, with_nulls_below(array.values), kind, mask=nulls)
    return array


def write_column(folder: Path, values: pa.Array) -> pa.ChunkedArray:
    schema = pa.schema([pa.field("c", values.type), *SYSTEM_FIELDS])
    piece = ParquetFileWriter(schema, None, ("zstd", None), 1 << 20, {}).open_piece(0, str(folder / "piece"), 0)
    piece.write(pa.record_batch([values], names=["c"]), np.arange(len(values)), np.zeros(len(values), np.int64))
    (file,) = piece.close()
    assert file.size_bytes == Path(file.location).stat().st_size
    return pq.read_table(file.location).column("c")


def test_a_null_in_a_row_that_is_not_null_is_refused(tmp_path: Path) -> None:  # D42
    fields = [pa.field("x", pa.int32(), nullable=False)]
    wrong = pa.StructArray.from_arrays([pa.array([1, None], pa.int32())], fields=fields)

    with pytest.raises(pa.ArrowInvalid, match="the NOT NULL field 'x' of a ROW is null where the ROW is not"):
        write_column(tmp_path, wrong)


def test_a_writer_that_fails_and_is_aborted_tells_the_first_failure(tmp_path: Path) -> None:  # D42
    schema = pa.schema([pa.field("c", pa.string(), nullable=False), *SYSTEM_FIELDS])
    piece = ParquetFileWriter(schema, None, ("zstd", None), 1 << 20, {}).open_piece(0, str(tmp_path / "piece"), 0)
    piece.write(pa.record_batch([[None]], names=["c"]), np.zeros(1, np.int64), np.zeros(1, np.int64))

    def close() -> None:
        try:
            piece.close()
        except BaseException:
            piece.abort()
            raise

    with pytest.raises(pa.ArrowInvalid, match="declared non-nullable but contains nulls"):
        close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("doing", ["write", "delete", "close"])
def test_a_file_that_fails_after_the_credentials_expired_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, doing: str
) -> None:  # D47
    schema = pa.schema([pa.field("k", pa.int32()), *SYSTEM_FIELDS])
    keys = pa.schema([schema.field("k")])
    settings = ParquetFileWriter(schema, keys, ("zstd", None), 1, {"s3.session-token-expires-at-ms": "1000"})
    (tmp_path / "file").touch()
    now = 0.5
    monkeypatch.setattr("fluss_tiering.lake.object_store.time.time", lambda: now)
    piece = settings.open_piece(0, str(tmp_path / "file" / "piece"), 0)
    now = 1.5
    rows = pa.record_batch({"k": pa.array([1], pa.int32())})
    stamps = np.zeros(1, np.int64)
    if doing == "close":
        piece.write(rows, stamps, stamps)
    else:
        monkeypatch.setattr(writing, "_MAX_BUFFERED_ROWS", 1)
    calls = {"write": lambda: piece.write(rows, stamps, stamps), "delete": lambda: piece.delete(rows)}

    with pytest.raises(FlussTieringError, match="expired at 1970-01-01T00:00:01"):
        calls.get(doing, piece.close)()


@pytest.mark.parametrize(("codec", "said"), [("gzip", "GZIP"), ("zstd", "ZSTD"), ("none", "UNCOMPRESSED")])
def test_files_are_compressed_as_the_settings_say(tmp_path: Path, codec: str, said: str) -> None:
    schema = pa.schema([pa.field("c", pa.string()), *SYSTEM_FIELDS])
    rows = pa.record_batch({"c": [f"{number * 7919 % 5000:x} and more" for number in range(5000)]})
    sizes = {}
    for level in (None,) if codec == "none" else (1, 9):
        settings = ParquetFileWriter(schema, None, (codec, level), 1 << 20, {})
        piece = settings.open_piece(0, str(tmp_path / f"level {level}"), 0)
        piece.write(rows, np.arange(5000), np.arange(5000))
        (file,) = piece.close()
        assert pq.read_metadata(file.location).row_group(0).column(0).compression == said
        sizes[level] = file.size_bytes
    assert codec == "none" or sizes[9] < sizes[1]


@pytest.mark.parametrize(("rows", "groups"), [(9, [9]), (10, [10]), (11, [10, 1]), (25, [10, 10, 5])])
def test_no_more_rows_are_buffered_than_their_bytes_allow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, groups: list[int]
) -> None:
    """What is buffered becomes one row group."""
    schema = pa.schema([pa.field("c", pa.binary())])
    size = pa.record_batch({"c": [bytes(1000)]}, schema=schema).nbytes
    monkeypatch.setattr(writing, "_MAX_BUFFERED_BYTES", 10 * size)
    piece = ParquetFileWriter(schema, None, ("none", None), 1 << 30, {}).open_piece(0, str(tmp_path / "piece"), 0)
    for _ in range(rows):
        piece.write(pa.record_batch({"c": [bytes(1000)]}), np.zeros(1, np.int64), np.zeros(1, np.int64))
    (file,) = piece.close()
    footer = pq.read_metadata(file.location)
    assert [footer.row_group(number).num_rows for number in range(footer.num_row_groups)] == groups


def test_a_writer_that_deletes_by_key_refuses_what_only_others_do(tmp_path: Path) -> None:
    writer = ParquetFileWriter(pa.schema(SYSTEM_FIELDS), None, ("zstd", None), 1 << 20, {})
    place = NotedPlace(0, str(tmp_path / "piece"), (), (), ())
    for call in (
        lambda: writer.open_piece(0, str(tmp_path / "piece"), 0, (), live=[]),
        lambda: writer.open_noting_piece(0, str(tmp_path / "piece"), 0),
        lambda: writer.write_deletes(place, 0),
    ):
        with pytest.raises(TypeError, match=r"^this writer deletes by key: expected no "):
            call()
    assert list(tmp_path.iterdir()) == []


def test_columns_that_had_a_nan_begin_no_file_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # D40
    monkeypatch.setattr(writing, "_MAX_BUFFERED_ROWS", 1)
    schema = pa.schema([pa.field("a", pa.float64()), pa.field("b", pa.float64()), *SYSTEM_FIELDS])
    piece = ParquetFileWriter(schema, None, ("zstd", None), 1 << 30, {}).open_piece(0, str(tmp_path / "piece"), 0)
    nan = float("nan")
    for a, b in [(1.0, 1.0), (nan, 1.0), (1.0, nan), (nan, 1.0), (nan, nan), (1.0, 1.0)]:
        piece.write(pa.record_batch({"a": [a], "b": [b]}), np.zeros(1, np.int64), np.zeros(1, np.int64))
    assert [file.metrics.record_count for file in piece.close()] == [1, 1, 4]


def test_a_file_without_rows_is_a_data_file_of_its_place(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("c", pa.string()), *SYSTEM_FIELDS])
    settings = ParquetFileWriter(schema, None, ("zstd", None), 1 << 20, {})
    location = str(tmp_path / "new" / "nothing.parquet")

    file = write_file_without_rows(settings, 3, location, ("mon",))

    size = Path(location).stat().st_size
    assert file == LakeFile(FileContent.DATA, 3, location, size, FileMetrics(0, ()), ("mon",))
    assert pq.read_schema(location).names == schema.names
    assert pq.read_metadata(location).num_rows == 0
    unpartitioned = write_file_without_rows(settings, 3, str(tmp_path / "b.parquet"))
    assert unpartitioned.partition_values == ()


@pytest.mark.slow
@pytest.mark.parametrize("count", [100, 60_000, 300_000])
def test_columns_whose_values_repeat_have_dictionaries(tmp_path: Path, count: int) -> None:
    random = np.random.default_rng(1)
    columns = {
        "few": pa.array(random.integers(0, 20, count)),
        "some": pa.array(random.integers(0, count // 10, count)),
        "unlike": pa.array(random.random(count)),
        "text": pa.array([f"no. {number}" for number in range(count)]),
        "nothing": pa.nulls(count, pa.string()),
        "nested": pa.array([[number] for number in range(count)], pa.list_(pa.int64())),
    }
    rows = pa.record_batch(columns)
    system = {
        BUCKET_COLUMN: pa.int32(),
        OFFSET_COLUMN: pa.int64(),
        TIMESTAMP_COLUMN: pa.timestamp("us", "UTC"),
    }
    schema = pa.schema([*rows.schema, *(pa.field(name, kind) for name, kind in system.items())])
    piece = ParquetFileWriter(schema, None, ("zstd", None), 1 << 30, {}).open_piece(0, str(tmp_path / "piece"), 0)
    piece.write(rows, np.arange(count), np.zeros(count, np.int64))
    (file,) = piece.close()
    written = pq.ParquetFile(file.location)
    chunks = [written.metadata.row_group(0).column(number) for number in range(written.metadata.num_columns)]
    with_dictionary = {chunk.path_in_schema for chunk in chunks if "RLE_DICTIONARY" in chunk.encodings}
    assert with_dictionary == {"few", "some", "nothing", BUCKET_COLUMN, TIMESTAMP_COLUMN}
    assert written.read().select(list(columns)).equals(pa.table(columns))


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
