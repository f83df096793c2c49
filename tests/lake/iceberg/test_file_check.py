"""The check of files finds each bound that a value lies beyond, and no other. These tests need no JVM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from pyarrow import fs
from written_files import BINARY, FULL_RANGE, TEXT, array_of, groups_of, write_groups

from fluss_tiering.lake.iceberg.deletes.puffin import PuffinWriter
from fluss_tiering.lake.iceberg.deletes.vector import DeletionVector
from fluss_tiering.lake.iceberg.metrics.bounds import decoded
from fluss_tiering.lake.iceberg.metrics.modes import TRUNCATED
from fluss_tiering.lake.iceberg.repair.check import FileChecker, ListedFile
from fluss_tiering.lake.protocol import FileContent, LakeFile
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

ALL = {**FULL_RANGE, pa.string(): TEXT, pa.binary(): BINARY}


def vector_of(positions: Sequence[int]) -> DeletionVector:
    vector = DeletionVector()
    vector.add(np.array(positions, np.int64))
    return vector


def listed(file: LakeFile, lower: bytes | None = None, upper: bytes | None = None) -> ListedFile:
    """Return a file as a manifest lists it, with other bounds of the column 1 if they are given."""
    lowers = file.metrics.lower_bounds | ({} if lower is None else {1: lower})
    uppers = file.metrics.upper_bounds | ({} if upper is None else {1: upper})
    return ListedFile(file.location, lowers, uppers)


@pytest.mark.parametrize("kind", ALL, ids=str)
@pytest.mark.parametrize("nested", [False, True])
def test_exactly_the_narrow_bounds_are_found(tmp_path: Path, kind: pa.DataType, nested: bool) -> None:  # D40
    @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
    @given(groups_of(ALL[kind]))
    @example([[None], [None]])
    def check(groups: list[list[Any]]) -> None:
        plain = pa.types.is_string(kind) or pa.types.is_binary(kind)
        if kind == pa.binary():
            groups = [[each.encode() if isinstance(each, str) else each for each in group] for group in groups]
        arrays = [pa.array(group, kind) if plain else array_of(kind, group) for group in groups]
        whole = kind
        if nested:
            whole = pa.struct([pa.field("x", kind, metadata={"PARQUET:field_id": "1"})])
            arrays = [pa.StructArray.from_arrays([array], fields=list(whole)) for array in arrays]
        checker = FileChecker({1: TRUNCATED}, {})
        for file in write_groups(tmp_path, whole, arrays, TRUNCATED):
            assert checker(listed(file)) is None
            lower, upper = file.metrics.lower_bounds.get(1), file.metrics.upper_bounds.get(1)
            if lower is None or upper is None or decoded(kind, lower) == decoded(kind, upper):
                continue
            for narrow in (listed(file, lower=upper), listed(file, upper=lower)):
                found = checker(narrow)
                assert found is not None
                assert found.location == file.location
                assert found.narrow_bounds == (("c.x",) if nested else ("c",))
                assert found.right_bounds == {1: (lower, upper)}

    check()


@pytest.mark.parametrize("kind", [kind for kind in FULL_RANGE if not pa.types.is_boolean(kind)], ids=str)
def test_a_file_without_statistics_is_read(tmp_path: Path, kind: pa.DataType) -> None:  # D40
    values = array_of(kind, [5, None, -3 if not pa.types.is_time(kind) else 3, 7])
    schema = pa.schema([pa.field("c", kind, metadata={"PARQUET:field_id": "1"})])
    location = str(tmp_path / "unknown.parquet")
    pq.write_table(pa.table([values], schema=schema), location, write_statistics=False, store_decimal_as_integer=True)
    (file,) = write_groups(tmp_path, kind, [values], TRUNCATED)
    lower, upper = file.metrics.lower_bounds[1], file.metrics.upper_bounds[1]
    checker = FileChecker({1: TRUNCATED}, {})
    assert checker(ListedFile(location, {1: lower}, {1: upper})) is None
    found = checker(ListedFile(location, {1: upper}, {1: upper}))
    assert found is not None
    assert found.right_bounds == {1: (lower, upper)}
    assert checker(ListedFile(location, {}, {})) is None, "a column without bounds hides nothing"


@pytest.mark.parametrize(
    ("content", "form", "named"),
    [
        (FileContent.DATA, "PARQUET", "data file"),
        (FileContent.EQUALITY_DELETES, "PARQUET", "equality delete file"),
        (FileContent.POSITION_DELETES, "PARQUET", "position delete file"),
        (FileContent.POSITION_DELETES, "PUFFIN", "position delete file"),
    ],
)
def test_a_file_that_is_missing_or_damaged_is_named(
    tmp_path: Path, content: FileContent, form: str, named: str
) -> None:
    path = tmp_path / "listed"
    pq.write_table(pa.table({"c": [1]}), path)
    file = ListedFile(f"file:{path}", {}, {}, content, form, path.stat().st_size)
    checker = FileChecker({}, {})
    assert checker(file) is None
    for damage, said in (
        (lambda: path.write_bytes(path.read_bytes()[:-20]), "damaged: "),
        (path.unlink, "missing: "),
    ):
        damage()
        with pytest.raises(FlussTieringError) as raised:
            checker(file)
        assert raised.value.code is ErrorCode.CORRUPT_DATA
        assert raised.value.message.startswith(f"{named} {said}{file.location}")
        assert (
            f": expected the {form.capitalize()} file that the lake table refers to; restore it" in raised.value.message
        )


@pytest.mark.parametrize(
    ("size", "rows", "said"),
    [(999, 2, "has {size} bytes instead of 999"), (None, 3, "has 2 rows instead of 3")],
    ids=["size", "rows"],
)
def test_another_file_in_the_place_of_a_data_file_is_damage_and_no_wrong_bounds(
    tmp_path: Path, size: int | None, rows: int, said: str
) -> None:
    path = tmp_path / "listed.parquet"
    column = pa.field("c", pa.int64(), metadata={"PARQUET:field_id": "1"})
    pq.write_table(pa.table([[7, 9]], schema=pa.schema([column])), path)
    bounds = {1: (0).to_bytes(8, "little")}
    file = ListedFile(f"file:{path}", bounds, bounds, size_bytes=path.stat().st_size, rows=2)
    checker = FileChecker({}, {})
    assert checker(file) is not None, "its bounds are wrong"
    other = replace(file, rows=rows, **({} if size is None else {"size_bytes": size}))
    said = f"data file damaged: {file.location}: it {said.format(size=path.stat().st_size)}"
    with pytest.raises(FlussTieringError) as raised:
        checker(other)
    assert raised.value.message.startswith(said)
    assert (checker.damage(other) or "").startswith(said)


def test_no_flipped_bit_of_a_puffin_file_changes_what_is_deleted(tmp_path: Path) -> None:
    path = tmp_path / "vectors.puffin"
    writer = PuffinWriter(str(path), fs.LocalFileSystem())
    places = [writer.write(name, vector_of(positions)) for name, positions in (("a", [1, 5]), ("b", range(1000)))]
    file = ListedFile(f"file:{path}", {}, {}, FileContent.POSITION_DELETES, "PUFFIN", writer.close())
    checker = FileChecker({}, {})
    assert checker.damage(file) is None
    content = path.read_bytes()
    for at in range(places[0].offset, places[1].offset + places[1].size_bytes):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        assert checker(file) is None, "the size is right"
        told = checker.damage(file)
        assert told is not None
        assert told.startswith(f"position delete file damaged: {file.location}: "), at
        assert "deletion vector" in told
    for at in range(len(content)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :])
        # The names of data files in the footer are not compared with anything.
        told = checker.damage(file)
        assert told is None or " damaged: " in told, at


def test_a_lower_bound_alone_is_checked(tmp_path: Path) -> None:  # D40
    last = "\U0010ffff" * 17
    (file,) = write_groups(tmp_path, pa.string(), [pa.array(["a", last])], TRUNCATED)
    assert file.metrics.upper_bounds == {}, "no text of 16 code points lies beyond"
    checker = FileChecker({1: TRUNCATED}, {})
    assert checker(listed(file)) is None
    found = checker(listed(file, lower=b"b"))
    assert found is not None
    assert found.right_bounds == {1: (b"a", None)}


def test_columns_with_dots_in_their_names_are_told_apart(tmp_path: Path) -> None:  # D40
    def field(name: str, number: int, kind: pa.DataType = pa.string()) -> pa.Field:  # noqa: B008 - it cannot change
        return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})

    nested = field("c", 3, pa.struct([field("x.y", 4)]))
    schema = pa.schema([field("a.b", 1), field("a", 2), nested])
    long = "y" * 5000
    rows = [{"a.b": f"b{long}", "a": f"m{long}", "c": {"x.y": f"z{long}"}}]
    location = str(tmp_path / "dots.parquet")
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), location)
    wide = {1: b"b", 2: b"m", 4: b"z"}
    checker = FileChecker({}, {})

    assert checker(ListedFile(location, wide, {1: b"c", 2: b"n", 4: b"{"})) is None
    found = checker(ListedFile(location, wide, {1: b"c", 2: b"m", 4: b"z"}))
    assert found is not None
    assert found.narrow_bounds == ("a", "c.x.y")
    assert found.right_bounds[2] == (b"m" + b"y" * 15, b"m" + b"y" * 14 + b"z")
