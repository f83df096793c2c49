"""The rows of data files that PyArrow wrote, with all that a writer may do to them, as a rewrite reads them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from fluss_tiering.formats.micros import as_type
from fluss_tiering.lake.files import LiveDataFile
from fluss_tiering.lake.iceberg.deletes.vector import DeletionVector
from fluss_tiering.lake.iceberg.maintenance import file_rows
from fluss_tiering.lake.iceberg.maintenance.file_rows import Lineage, UnknownLayoutError, first_offset, read_rows
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

LOCAL = fs.LocalFileSystem()
ROW_ID, SEQUENCE_NUMBER = 2147483540, 2147483539
REMEDY = "restore it from a backup, or from an older version if its store keeps versions"


def field(name: str, number: int | None, kind: pa.DataType, *, nullable: bool = True) -> pa.Field:
    return pa.field(name, kind, nullable, {} if number is None else {"PARQUET:field_id": str(number)})


ID = field("id", 1, pa.int64(), nullable=False)
NAME = field("name", 2, pa.string())
WANTED = pa.schema([ID, NAME])


def written(folder: Path, rows: pa.Table, **options: Any) -> LiveDataFile:
    path = folder / "rows.parquet"
    pq.write_table(rows, path, **options)
    return LiveDataFile(f"file://{path}", (0,), rows.num_rows)


def table_of(*columns: tuple[pa.Field, Sequence[Any]]) -> pa.Table:
    return pa.table([pa.array(values, each.type) for each, values in columns], pa.schema([each for each, _ in columns]))


def of_count(count: int) -> pa.Table:
    return table_of((ID, range(count)), (NAME, [f"name {number}" for number in range(count)]))


def vector(positions: Sequence[int]) -> DeletionVector:
    found = DeletionVector()
    found.add(np.array(positions, np.int64))
    return found


def read(
    file: LiveDataFile, schema: pa.Schema = WANTED, gone: Sequence[int] = (), lineage: Lineage | None = None
) -> list[tuple[Any, ...]]:
    batches = read_rows(LOCAL, file, schema, vector(gone), lineage)
    return [row for columns in batches for row in zip(*(each.to_pylist() for each in columns), strict=True)]


@pytest.mark.parametrize("rows_at_once", [1, 3, 7, 100])
def test_rows_that_are_not_deleted_come_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_at_once: int
) -> None:
    monkeypatch.setattr(file_rows, "_BATCH_ROWS", rows_at_once)
    rows = of_count(40)
    file = written(tmp_path, rows, row_group_size=16)
    expected = [tuple(each.values()) for each in rows.to_pylist()]
    chance = random.Random(rows_at_once)
    for gone in ([], [0], [39], range(40), [2, 3, 4], range(3, 40), *(chance.sample(range(40), 12) for _ in range(5))):
        assert read(file, gone=gone) == [row for number, row in enumerate(expected) if number not in set(gone)]


def test_columns_are_found_by_their_ids(tmp_path: Path) -> None:
    added = field("added", 9, pa.float64())
    rows = table_of(
        (field("dropped", 5, pa.int32()), [7, 8]),
        (field("id", 2, pa.string()), ["a", None]),
        (field("old name", 1, pa.int32()), [1, 2]),
    )
    assert read(written(tmp_path, rows), pa.schema([ID, added, NAME])) == [(1, None, "a"), (2, None, None)]
    (columns,) = read_rows(LOCAL, written(tmp_path, rows), pa.schema([ID, added]), vector([]))
    # Who writes the rows makes them as wide as the table has them.
    assert [each.type for each in columns] == [pa.int32(), pa.float64()]


def with_rows(name: str, list_of: Any = pa.list_, number: pa.DataType | None = None) -> pa.Field:
    """Return a column with a ROW in a ROW, in an ARRAY and in a MAP, a part of which has this name."""

    def row(first: int) -> pa.StructType:
        return pa.struct([field("n", first, number or pa.int64()), field(name, first + 1, pa.string())])

    parts = [
        field("r", 11, row(12)),
        field("a", 14, list_of(field("element", 15, row(16)))),
        field("m", 18, pa.map_(field("key", 19, pa.string(), nullable=False), field("value", 20, row(21)))),
    ]
    return field("nested", 10, pa.struct(parts))


@pytest.mark.parametrize("list_of", [pa.list_, pa.large_list])
def test_parts_of_columns_are_found_by_their_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, list_of: Any) -> None:
    """Iceberg's own writers do not keep names with characters that Avro does not allow."""
    monkeypatch.setattr(file_rows, "_BATCH_ROWS", 2)

    def rows(name: str) -> list[dict[str, Any] | None]:
        values = [{"n": number, name: f"text {number}"} for number in range(3)]
        return [
            {"r": values[0], "a": values[1:], "m": [("k", values[2])]},
            None,
            {"r": None, "a": [], "m": None},
            {"r": values[1], "a": [None, values[0]], "m": [("k", None), ("l", values[1])]},
            {"r": {"n": None, name: "text"}, "a": None, "m": []},
        ]

    theirs = with_rows("first_x2Dname", list_of, pa.int32())
    file = written(tmp_path, table_of((ID, range(5)), (theirs, rows("first_x2Dname"))))

    wanted = pa.schema([ID, with_rows("first-name")])
    assert read(file, wanted) == list(enumerate(rows("first-name")))
    # Who writes the rows makes them as wide as the table has them.
    columns = [pa.concat_arrays(parts) for parts in zip(*read_rows(LOCAL, file, wanted, vector([])), strict=True)]
    assert as_type(columns[1], wanted.field(1).type).to_pylist() == rows("first-name")


def test_columns_that_are_not_wanted_are_not_read(tmp_path: Path) -> None:
    rows = table_of((field("dropped", 5, pa.string()), [f"{number}" * 99 for number in range(50)]), (ID, range(50)))
    file = written(tmp_path, rows, use_dictionary=False)
    path = tmp_path / "rows.parquet"
    chunk = pq.read_metadata(path).row_group(0).column(0)
    content = bytearray(path.read_bytes())
    end = chunk.data_page_offset + chunk.total_compressed_size
    content[chunk.data_page_offset : end] = b"\xff" * chunk.total_compressed_size
    path.write_bytes(content)
    assert read(file, pa.schema([ID])) == [(number,) for number in range(50)]


def test_a_file_without_rows_has_none(tmp_path: Path) -> None:
    assert read(written(tmp_path, of_count(0))) == []
    file = written(tmp_path, table_of((field("__offset", 7, pa.int64()), [])))
    assert first_offset(LOCAL, file) == -1


@pytest.mark.parametrize(
    "columns",
    [
        [field("id", None, pa.int64()), NAME],
        [field("id", None, pa.int64()), field("name", None, pa.string())],
        [ID, field("name", 1, pa.string())],
    ],
    ids=["one without an id", "none with an id", "one id twice"],
)
def test_columns_without_ids_of_their_own_are_left_to_others(tmp_path: Path, columns: list[pa.Field]) -> None:
    file = written(tmp_path, table_of((columns[0], [1]), (columns[1], ["a"])))
    with pytest.raises(UnknownLayoutError, match=f"the data file {file.location} has columns without ids"):
        read(file)


def nested(element: int | None, part: int | None) -> pa.DataType:
    return pa.list_(field("element", element, pa.struct([field("a", part, pa.int32())])))


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (nested(4, 5), None),
        (nested(4, 6), "has other parts"),
        (nested(5, 5), "has other parts"),
        (nested(4, None), "has other parts"),
        (nested(None, None), "has other parts"),
        (pa.list_(field("element", 4, pa.int32())), "has other parts"),
    ],
    ids=["same", "other field", "other element", "field without id", "no ids", "no struct"],
)
def test_nested_columns_have_the_ids_of_the_table(tmp_path: Path, found: pa.DataType, message: str | None) -> None:
    schema = pa.schema([ID, field("n", 3, nested(4, 5))])
    value = [{"a": 7}] if pa.types.is_struct(found.value_type) else [7]
    file = written(tmp_path, table_of((ID, [1]), (field("n of old", 3, found), [value])))
    if message is None:
        assert read(file, schema) == [(1, [{"a": 7}])]
        return
    with pytest.raises(UnknownLayoutError, match=f"the column n of old of the data file {file.location} {message}"):
        read(file, schema)


def test_the_order_of_the_fields_of_a_struct_matters(tmp_path: Path) -> None:
    a, b = field("a", 4, pa.int32()), field("b", 5, pa.int32())
    file = written(tmp_path, table_of((ID, [1]), (field("s", 3, pa.struct([b, a])), [{"a": 1, "b": 2}])))
    with pytest.raises(UnknownLayoutError, match="has other parts"):
        read(file, pa.schema([ID, field("s", 3, pa.struct([a, b]))]))


@pytest.mark.parametrize("rows_at_once", [2, 100])
@pytest.mark.parametrize("own", [True, False], ids=["some in the file", "none in the file"])
def test_rows_without_a_lineage_in_the_file_have_that_of_the_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_at_once: int, *, own: bool
) -> None:
    monkeypatch.setattr(file_rows, "_BATCH_ROWS", rows_at_once)
    row_ids, numbers = [None, 5, None, 6, None], [None, 3, 4, None, None]
    columns: list[tuple[pa.Field, Sequence[Any]]] = [(ID, range(5))]
    if own:
        columns += [
            (field("_last_updated_sequence_number", SEQUENCE_NUMBER, pa.int64()), numbers),
            (field("_row_id", ROW_ID, pa.int64()), row_ids),
        ]
    file = written(tmp_path, table_of(*columns))
    expected = [(0, 100, 9), (1, 5, 3), (2, 102, 4), (3, 6, 9), (4, 104, 9)]
    if not own:
        expected = [(number, 100 + number, 9) for number in range(5)]
    schema = pa.schema([ID])
    assert read(file, schema, lineage=Lineage(100, 9)) == expected
    assert read(file, schema, [0, 3], Lineage(100, 9)) == [each for each in expected if each[0] not in {0, 3}]
    assert read(file, schema) == [(number,) for number in range(5)]


def refused(file: LiveDataFile, schema: pa.Schema = WANTED) -> str:
    with pytest.raises(FlussTieringError) as error:
        read(file, schema)
    assert error.value.code is ErrorCode.CORRUPT_DATA
    assert error.value.message.endswith(f": expected the Parquet file that the lake table refers to; {REMEDY}")
    return error.value.message.replace(file.location, "FILE").partition(": expected")[0]


def test_a_file_that_is_not_the_one_of_the_table_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path, of_count(3))
    path = Path(file.location.removeprefix("file://"))
    assert refused(replace(file, rows=4)) == "data file unusable: FILE has 3 rows, and the lake table says 4"
    assert refused(file, pa.schema([ID, NAME, field("v", 3, pa.int32(), nullable=False)])) == (
        "data file unusable: FILE lacks the column v, which is never null"
    )
    path.write_bytes(path.read_bytes()[:-9])
    assert refused(file).startswith("data file damaged: FILE: ")
    with pytest.raises(FlussTieringError, match="data file damaged"):
        first_offset(LOCAL, file)
    path.unlink()
    assert refused(file) == "data file missing: FILE"
    with pytest.raises(FlussTieringError, match="data file missing"):
        first_offset(LOCAL, file)


def test_batches_of_large_rows_are_small(tmp_path: Path) -> None:
    # The rows of the second row group are a million bytes each.
    texts = ["short"] * 100 + [random.Random(number).randbytes(500_000).hex() for number in range(20)]
    rows = table_of((ID, range(120)), (NAME, texts))
    path = tmp_path / "rows.parquet"
    with pq.ParquetWriter(path, rows.schema, compression="none", use_dictionary=False) as writer:
        writer.write_table(rows.slice(0, 100), row_group_size=100)
        writer.write_table(rows.slice(100), row_group_size=20)
    file = LiveDataFile(f"file://{path}", (0,), 120)
    sizes = [len(columns[0]) for columns in read_rows(LOCAL, file, WANTED, vector([]))]
    assert sum(sizes) == 120
    assert max(sizes) == 8


def test_the_first_offset_is_that_of_the_footer(tmp_path: Path) -> None:
    offset = field("__offset", 7, pa.int64())
    part = field("p", 9, pa.struct([field("__offset", 10, pa.int64()), field("q", 11, pa.int64())]))
    inside = (part, [{"__offset": number, "q": -number} for number in range(6)])
    rows = table_of(inside, (ID, range(6)), (offset, [30, 31, 12, 13, 24, 25]))
    assert first_offset(LOCAL, written(tmp_path, rows, row_group_size=2)) == 12
    assert first_offset(LOCAL, written(tmp_path, rows, write_statistics=False)) == -1
    assert first_offset(LOCAL, written(tmp_path, table_of(inside, (ID, range(6))))) == -1
    # Rows that others wrote have no offset.
    rows = table_of((ID, range(4)), (offset, [None, None, 5, 6]))
    assert first_offset(LOCAL, written(tmp_path, rows, row_group_size=2)) == 5
    rows = table_of((offset, [0, 1]))
    assert first_offset(LOCAL, written(tmp_path, rows)) == 0
