"""The metrics of the files that executors write: which ones, their bounds and modes. These tests need no JVM."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from written_files import BINARY, FULL_RANGE, SYSTEM, TEXT, array_of, files_of, groups_of, metrics_of

from fluss_tiering.lake.files import FileMetrics
from fluss_tiering.lake.iceberg import parquet as writing
from fluss_tiering.lake.iceberg.dictionaries import Dictionaries, repeating_columns
from fluss_tiering.lake.iceberg.layout import schema_json
from fluss_tiering.lake.iceberg.metrics.bounds import encoded
from fluss_tiering.lake.iceberg.metrics.modes import COUNTS, FULL, NONE, TRUNCATED, MetricsMode, metrics_modes
from fluss_tiering.lake.iceberg.parquet import ParquetFileWriter
from fluss_tiering.model.table import Column, DataType, TableDescriptor


def number_in(kind: pa.DataType, bound: bytes) -> Any:
    """Return the raw value that a bound is, as appendix D of Iceberg's table spec says it."""
    if pa.types.is_decimal(kind):
        assert len(bound) == 1 or bound[:1] not in (b"\x00", b"\xff") or (bound[0] ^ bound[1]) & 0x80
        return int.from_bytes(bound, "big", signed=True)
    form = {pa.bool_(): "<?", pa.float32(): "<f", pa.float64(): "<d", pa.int32(): "<i", pa.date32(): "<i"}.get(
        kind, "<q"
    )
    assert len(bound) == struct.calcsize(form)
    return struct.unpack(form, bound)[0]


@pytest.mark.parametrize("kind", FULL_RANGE, ids=str)
def test_bounds_of_numbers_are_the_extreme_values(tmp_path: Path, kind: pa.DataType) -> None:  # D40, D41
    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    @given(groups_of(FULL_RANGE[kind]))
    @example([[None], [None, None]])
    def check(groups: list[list[Any]]) -> None:
        written = 0
        for metrics in files_of(tmp_path, kind, [array_of(kind, group) for group in groups], TRUNCATED):
            count = len(metrics.split_offsets)
            check_file(metrics, kind, [value for group in groups[written : written + count] for value in group])
            written += count
        assert written == len(groups)

    check()


def check_file(metrics: FileMetrics, kind: pa.DataType, values: list[Any]) -> None:
    nans = sum(value is not None and value != value for value in values)
    numbers = [value for value in values if value is not None and value == value]
    assert metrics.record_count == metrics.value_counts[1] == len(values)
    assert metrics.null_value_counts[1] == values.count(None)
    assert sorted(set(metrics.split_offsets)) == list(metrics.split_offsets)
    # Iceberg would skip a file that says that it has only NaN.
    known = pa.types.is_floating(kind) and not (nans and nans == len(values))
    assert metrics.nan_value_counts.get(1) == (nans if known else None)
    if not numbers or nans:
        assert metrics.lower_bounds.keys() == metrics.upper_bounds.keys() == set()
        return
    lower, upper = (number_in(kind, bounds[1]) for bounds in (metrics.lower_bounds, metrics.upper_bounds))
    assert (lower, upper) == (min(numbers), max(numbers))
    if pa.types.is_floating(kind):
        # The total order of IEEE 754 has -0.0 below 0.0.
        assert lower or np.signbit(lower)
        assert upper or not np.signbit(upper)


@pytest.mark.parametrize("nested", [False, True])
def test_a_column_with_nan_has_no_bounds_anywhere(tmp_path: Path, nested: bool) -> None:  # D40
    kind = pa.struct([pa.field("x", pa.float64(), metadata={"PARQUET:field_id": "1"})]) if nested else pa.float64()
    groups = [[1.0, 2.0], [3.0], [float("nan"), 4.0], [5.0], [None]]
    arrays = [pa.array([{"x": value} for value in group] if nested else group, kind) for group in groups]
    before, after = files_of(tmp_path, kind, arrays, TRUNCATED)

    # With the first NaN another file begins, since Parquet's writer is told for a whole file what has bounds.
    assert (before.record_count, after.record_count) == (3, 4)
    assert (before.nan_value_counts[1], after.nan_value_counts[1]) == (0, 1)
    assert (before.null_value_counts[1], after.null_value_counts[1]) == (0, 1)
    assert (before.lower_bounds[1], before.upper_bounds[1]) == (struct.pack("<d", 1), struct.pack("<d", 3))
    assert 1 not in after.lower_bounds
    assert 1 not in after.upper_bounds
    _, second = sorted(tmp_path.glob("*.parquet"))
    footer = pq.read_metadata(second)
    assert [footer.row_group(group).column(0).statistics for group in range(3)] == [None, None, None]
    assert footer.row_group(0).column(1).statistics.has_min_max


# D40
@pytest.mark.parametrize(("values", "known"), [([float("nan")], {}), ([float("nan"), None], {1: 1}), ([None], {1: 0})])
def test_a_file_does_not_say_that_it_has_only_nan(tmp_path: Path, values: list[float | None], known: dict) -> None:
    (metrics,) = files_of(tmp_path, pa.float64(), [pa.array(values, pa.float64())] * 2, TRUNCATED)
    assert metrics.nan_value_counts == {key: 2 * count for key, count in known.items()}


@pytest.mark.parametrize("mode", [TRUNCATED, MetricsMode(length=1), MetricsMode(length=5000), FULL], ids=str)
@pytest.mark.parametrize("kind", [pa.string(), pa.binary()], ids=str)
def test_no_text_lies_beyond_the_bounds(tmp_path: Path, kind: pa.DataType, mode: MetricsMode) -> None:  # D40, D41
    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    @given(groups_of(TEXT if kind == pa.string() else BINARY))
    @example([["m", "n"], ["a", "y" * 5000]])
    @example([["a" * 16 + "b", "\ud7ff" * 17]])
    @example([["\ud7ff" * 4097], [None]])
    def check(groups: list[list[Any]]) -> None:
        if kind == pa.binary():
            groups = [[each.encode() if isinstance(each, str) else each for each in group] for group in groups]
        metrics = metrics_of(tmp_path, kind, [pa.array(group, kind) for group in groups], mode)
        values = [
            each.encode() if isinstance(each, str) else each for group in groups for each in group if each is not None
        ]
        lower, upper = metrics.lower_bounds.get(1), metrics.upper_bounds.get(1)
        if not values:
            assert lower is upper is None
            return
        assert lower is not None
        assert lower <= min(values)
        length = mode.length or 4096
        if kind == pa.string():
            lengths = [len(bound.decode()) for bound in (lower, upper) if bound is not None]
            last = "\U0010ffff" * min(length, 1024)
        else:
            lengths = [len(bound) for bound in (lower, upper) if bound is not None]
            last = b"\xff" * min(length, 1024)
        assert max(lengths) <= length
        if upper is None:
            assert max(values).startswith(last.encode() if isinstance(last, str) else last)
        else:
            assert upper >= max(values)

    check()


@pytest.mark.parametrize("invalid", [b"\xff\xfe", b"a" * 15 + b"\xed\xa0\x80", b"\xc3" + b"a" * 5000])
def test_text_that_is_not_utf_8_has_no_bound(tmp_path: Path, invalid: bytes) -> None:  # D41
    offsets = np.array([0, len(invalid)], np.int32)
    text = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(offsets), pa.py_buffer(invalid)])
    metrics = metrics_of(tmp_path, pa.string(), [text], TRUNCATED)

    assert metrics.lower_bounds == metrics.upper_bounds == {}
    assert metrics.value_counts == {1: 1}


def test_the_mode_says_what_is_written(tmp_path: Path) -> None:
    text = pa.array(["abc", None])

    nothing = metrics_of(tmp_path, pa.string(), [text], NONE)
    assert nothing.column_sizes == nothing.value_counts == nothing.null_value_counts == nothing.lower_bounds == {}
    counts = metrics_of(tmp_path, pa.string(), [text], COUNTS)
    assert counts.value_counts == {1: 2}
    assert counts.null_value_counts == {1: 1}
    assert counts.lower_bounds == {}
    cut = metrics_of(tmp_path, pa.string(), [text], MetricsMode(length=2))
    assert (cut.lower_bounds, cut.upper_bounds) == ({1: b"ab"}, {1: b"ac"})
    full = metrics_of(tmp_path, pa.string(), [text], FULL)
    assert (full.lower_bounds, full.upper_bounds) == ({1: b"abc"}, {1: b"abc"})


def test_columns_behind_those_without_metrics_have_theirs(tmp_path: Path) -> None:
    def named(name: str, kind: pa.DataType, number: int) -> pa.Field:
        return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})

    texts, lists = pa.string(), pa.list_(named("element", pa.float64(), 2))
    schema = pa.schema(
        [named("none", texts, 1), named("list", lists, 3), named("x", pa.float64(), 4), named("s", texts, 5), *SYSTEM]
    )
    settings = ParquetFileWriter(schema, None, ("none", None), 1 << 30, {}, {1: NONE})
    piece = settings.open_piece(0, str(tmp_path / "piece"), 0)
    rows = {
        "none": ["a"] * 3,
        "list": [[float("nan")], [], None],
        "x": [None, float("nan"), 1.0],
        "s": ["m" * 5000] * 3,
    }
    piece.write(pa.record_batch(rows, schema=pa.schema(list(schema)[:4])), np.zeros(3, np.int64), np.zeros(3, np.int64))
    (file,) = piece.close()

    assert file.metrics.value_counts == {4: 3, 5: 3}
    assert file.metrics.null_value_counts == {4: 1, 5: 0}
    assert file.metrics.nan_value_counts == {4: 1}
    assert file.metrics.lower_bounds == {5: b"m" * 16}
    assert file.metrics.upper_bounds == {5: b"m" * 15 + b"n"}


def test_parts_of_rows_have_bounds_and_parts_of_lists_and_maps_have_sizes(tmp_path: Path) -> None:  # D40
    def named(name: str, kind: pa.DataType, number: int, *, nullable: bool = True) -> pa.Field:
        return pa.field(name, kind, nullable, {"PARQUET:field_id": str(number)})

    entries = named("key", pa.string(), 8, nullable=False), named("value", pa.float32(), 9)
    kind = pa.struct(
        [
            named("x", pa.float64(), 2),
            named("deep", pa.struct([named("s", pa.string(), 4)]), 3),
            named("list", pa.list_(named("element", pa.int32(), 6)), 5),
            named("map", pa.map_(*entries), 7),
        ]
    )
    rows = [
        {"x": 1.0, "deep": {"s": "m"}, "list": [1, None, 3], "map": [("k", 1.0)]},
        {"x": 2.0, "deep": {"s": "y" * 5000}, "list": [], "map": []},
        None,
    ]
    metrics = metrics_of(tmp_path, kind, [pa.array(rows[:1], kind), pa.array(rows[1:], kind)], TRUNCATED)

    assert set(metrics.column_sizes) == {2, 4, 6, 8, 9}
    assert metrics.value_counts == {2: 3, 4: 3}
    assert metrics.null_value_counts == {2: 1, 4: 1}
    assert metrics.nan_value_counts == {2: 0}
    assert metrics.lower_bounds == {2: struct.pack("<d", 1), 4: b"m"}
    assert metrics.upper_bounds == {2: struct.pack("<d", 2), 4: b"y" * 15 + b"z"}


def test_a_bound_that_cannot_be_made_is_left_out() -> None:  # D41
    assert encoded(pa.string(), "\U0010ffff".encode() * 17, upper=True, length=16) is None
    assert encoded(pa.string(), "\U0010ffff".encode() * 17, upper=False, length=16) == "\U0010ffff".encode() * 16
    assert encoded(pa.binary(), b"\xff" * 17, upper=True, length=16) is None
    assert encoded(pa.duration("s"), 1, upper=True, length=16) is None


DEFAULT = "write.metadata.metrics.default"
COLUMN = "write.metadata.metrics.column."
MAX = "write.metadata.metrics.max-inferred-column-defaults"
TYPES = {"a": "INT", "s": "ROW<x STRING, y ROW<z DATE>>", "l": "ARRAY<ROW<e INT>>", "m": "MAP<STRING, ARRAY<INT>>"}
FIELDS = schema_json(TableDescriptor(tuple(Column(name, DataType.parse(kind)) for name, kind in TYPES.items())))[
    "fields"
]


def ids(fields: list[dict[str, Any]], prefix: str = "") -> dict[str, int]:
    """Return the id of each column and each part of one, by the name that properties give it."""
    found: dict[str, int] = {}
    for field in fields:
        found |= {prefix + field["name"]: field["id"], **_parts(prefix + field["name"], field["type"])}
    return found


def _parts(name: str, kind: Any) -> dict[str, int]:
    if isinstance(kind, str):
        return {}
    if kind["type"] == "struct":
        return ids(kind["fields"], f"{name}.")
    parts = ["element"] if kind["type"] == "list" else ["key", "value"]
    found = {f"{name}.{part}": kind[f"{part}-id"] for part in parts}
    return found | {key: number for part in parts for key, number in _parts(f"{name}.{part}", kind[part]).items()}


IDS = ids(FIELDS)


def modes(properties: dict[str, str], **options: Any) -> dict[str, MetricsMode]:
    found = metrics_modes(FIELDS, properties, **options)
    assert set(found) == set(IDS.values()), "each part of each column has a mode"
    return {name: found[number] for name, number in IDS.items()}


def test_by_default_bounds_are_cut_to_16_characters():
    assert modes({}) == dict.fromkeys(IDS, TRUNCATED)
    assert TRUNCATED.length == 16


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("none", NONE),
        ("Counts", COUNTS),
        ("FULL", FULL),
        ("truncate(5)", MetricsMode(length=5)),
        ("TRUNCATE(16)", TRUNCATED),
        # What is no mode counts as if it were not set.
        ("truncate(0)", TRUNCATED),
        ("truncate(-1)", TRUNCATED),
        ("truncate(x)", TRUNCATED),
        ("some", TRUNCATED),
        ("", TRUNCATED),
    ],
)
def test_the_default_is_a_property(text: str, mode: MetricsMode):
    assert modes({DEFAULT: text}) == dict.fromkeys(IDS, mode)


@pytest.mark.parametrize("name", IDS)
def test_each_part_of_a_column_can_be_named(name: str):
    expected = {**dict.fromkeys(IDS, COUNTS), name: FULL}
    assert modes({DEFAULT: "counts", COLUMN + name: "full"}) == expected
    assert modes({DEFAULT: "counts", COLUMN + name: "wrong"}) == dict.fromkeys(IDS, COUNTS)


def test_columns_of_the_key_have_bounds_unless_the_properties_name_them():
    key = {"sorted_ids": [IDS["a"]]}
    assert modes({}, **key)["a"] == TRUNCATED
    assert modes({DEFAULT: "none"}, **key) == {**dict.fromkeys(IDS, NONE), "a": TRUNCATED}
    assert modes({DEFAULT: "counts"}, **key)["a"] == TRUNCATED
    assert modes({DEFAULT: "full"}, **key)["a"] == FULL
    assert modes({DEFAULT: "none", f"{COLUMN}a": "counts"}, **key)["a"] == COUNTS


def test_of_a_wide_table_the_first_columns_have_metrics():
    wide = [{"id": number, "name": f"c{number}", "type": "int"} for number in range(1, 121)]
    found = metrics_modes(wide, {}, [120])
    assert [found[number] for number in (1, 100, 101, 119, 120)] == [TRUNCATED, TRUNCATED, NONE, NONE, TRUNCATED]
    assert set(metrics_modes(wide[:100], {}).values()) == {TRUNCATED}
    assert list(metrics_modes(wide, {MAX: "7"}).values()) == [TRUNCATED] * 7 + [NONE] * 113
    assert set(metrics_modes(wide, {MAX: "120"}).values()) == {TRUNCATED}
    assert set(metrics_modes(wide, {MAX: "-1"}).values()) == {NONE}
    assert metrics_modes(wide, {MAX: "many"}) == metrics_modes(wide, {})


def test_plain_columns_come_before_the_parts_of_nested_ones():
    in_order = ["a", "__bucket", "__offset", "__timestamp", "s.x", "s.y.z", "l.element.e"]
    assert len(FIELDS) == 7, "a table with more columns than the limit"
    for count in range(1, 7):
        found = modes({MAX: str(count)})
        assert {name for name, mode in found.items() if mode == TRUNCATED} == set(in_order[:count])


@pytest.mark.parametrize("number", [-(10**37), -129, -128, -1, 0, 1, 127, 128, 10**37])
def test_a_long_decimal_is_bound_by_its_shortest_form(number: int):  # D40
    kind = pa.decimal128(38, 10)
    stored = number.to_bytes(16, "big", signed=True)
    sizes = (size for size in range(1, 17) if -(1 << 8 * size - 1) <= number < 1 << 8 * size - 1)
    shortest = number.to_bytes(next(sizes), "big", signed=True)
    for value in (number, stored):
        assert encoded(kind, value, upper=False, length=16) == shortest


@pytest.mark.parametrize(
    ("value", "length", "bound"),
    [
        (b"aX" + b"z" * 9, 2, b"aY"),
        (b"a\xff" + b"z" * 9, 2, b"b"),
        (b"\xff\xff" + b"z" * 9, 2, None),
        (b"aX", 2, b"aX"),
    ],
)
def test_an_upper_bound_of_bytes_is_the_next_value_of_its_length(value: bytes, length: int, bound: bytes | None):  # D40
    assert encoded(pa.binary(), value, upper=True, length=length) == bound
    assert encoded(pa.binary(), value, upper=False, length=length) == value[:length]


def test_a_file_tells_its_bucket_and_where_its_row_groups_begin(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(writing, "_MAX_BUFFERED_ROWS", 1)
    schema = pa.schema([pa.field("c", pa.int32(), metadata={"PARQUET:field_id": "1"}), *SYSTEM])
    piece = ParquetFileWriter(schema, None, ("none", None), 1 << 40, {}).open_piece(
        3, str(tmp_path / "new" / "folder" / "f"), 7, ("mon",)
    )
    for number in range(3):
        piece.write(pa.record_batch([pa.array([number], pa.int32())], names=["c"]), np.array([number]), np.array([0]))
    (file,) = piece.close()

    assert (file.bucket, file.partition_values) == (3, ("mon",))
    groups = pq.ParquetFile(file.location).metadata
    starts = [groups.row_group(number).column(0) for number in range(groups.num_row_groups)]
    expected = [min(filter(None, (each.dictionary_page_offset, each.data_page_offset))) for each in starts]
    assert list(file.metrics.split_offsets) == expected
    assert len(expected) == 3


def test_columns_whose_values_hardly_repeat_get_no_dictionary():
    count = 20_000
    numbers = np.arange(count)
    tenths = numbers // 2 % 10
    rows = pa.table(
        {
            "unique": numbers,
            "some": np.where(tenths < 1, 0, numbers),
            "most": np.where(tenths < 8, 0, numbers),
            "few values": numbers % 50,
        }
    )
    assert repeating_columns(rows, rows.nbytes) == ["most", "few values"]


def test_how_many_values_repeat_is_told_from_a_sample():
    count, random = 300_000, np.random.default_rng(1)
    rows = pa.table({str(size): random.integers(0, size, count) for size in (10_000, 30_000, 150_000)})
    # The dictionary of the last column would not fit: it would be given up in the middle of the file.
    assert repeating_columns(rows, rows.nbytes) == ["10000", "30000"]
    # Of large rows, fewer are looked at: of these, one in a hundred.
    assert repeating_columns(rows, (4 << 20) * 100 + 1) == ["10000", "30000"]


def test_nested_columns_are_never_said_to_repeat():
    rows = pa.table({"same": [1, 1], "nested": [[1], [1]]})
    assert repeating_columns(rows, rows.nbytes) == ["same"]


def test_many_small_files_share_what_is_known_of_one():
    known = Dictionaries()
    unique, same = (pa.table({"a": values}) for values in (list(range(100)), [1] * 150))
    assert known.of(unique, unique.nbytes) == known.of(same, same.nbytes) == []
    many = pa.table({"a": [1] * 201})
    assert known.of(many, many.nbytes) == ["a"]
