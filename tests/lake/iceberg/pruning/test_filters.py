"""Predicates on columns of each type find the same rows in each engine, pushed down or not, as a plain model does."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from filterable import COLUMNS, TIMES, Filterable, asked_about, spread
from lake_support import Lake

import fluss_tiering.lake.iceberg.parquet as writing
from judges import CLICKHOUSE, DUCKDB, PYICEBERG, SPARK

ROWS = 48
FILES = 6
_NAN_IS_LARGEST = (DUCKDB, SPARK)
_BLOOM_FILTER = "write.parquet.bloom-filter-enabled.column."


def filled(lake: Lake, columns: Mapping[str, Filterable]) -> Lake:
    """Write files of some row groups, each of which has few of the values of a column."""
    values = {name: spread(column, ROWS) for name, column in columns.items()}
    rows = [
        {"id": number, **{name: columns[name].written(values[name][number]) for name in columns}}
        for number in range(ROWS)
    ]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(writing, "_MAX_BUFFERED_ROWS", 1)
        opened = lake.open()
        size = ROWS // FILES
        files = [
            file
            for start in range(0, ROWS, size)
            for file in lake.write(opened, [lake.batch(rows[at : at + 2]) for at in range(start, start + size, 2)])
        ]
    lake.commit_files(opened, files)
    return lake


def make(spark: Any, folder: Path, columns: Mapping[str, Filterable]) -> Lake:
    types = {"id": "INT", **{name: column.kind for name, column in columns.items()}}
    filters = {
        _BLOOM_FILTER + ".".join((name, *column.path)): "true"
        for name, column in columns.items()
        if column.has_bloom_filter
    }
    return filled(Lake(spark, folder, types, properties=filters), columns)


@pytest.fixture(scope="module")
def lake(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    return make(spark, tmp_path_factory.mktemp("filters"), COLUMNS)


@pytest.fixture(scope="module")
def times(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    return make(spark, tmp_path_factory.mktemp("times"), TIMES)


def check(lake: Lake, judge: str, name: str, column: Filterable) -> None:
    plain = [None if value is None else column.plain(value) for value in spread(column, ROWS)]
    for asked in asked_about(name, column):
        if judge == PYICEBERG and any(_is_beyond_pyiceberg(name, value) for _, value in asked.comparisons):
            continue
        expected = [
            number for number, value in enumerate(plain) if asked.holds(value, nan_is_largest=judge in _NAN_IS_LARGEST)
        ]
        for push_down in (True,) if judge == PYICEBERG else (True, False):
            found = lake.values(judge, "id", asked.predicates(column.path), push_down=push_down)
            assert found == expected, (judge, asked, push_down)


def _is_beyond_pyiceberg(name: str, value: Any) -> bool:
    """Return whether pyiceberg refuses a value: it has no literal of NaN, and no infinity for a FLOAT."""
    return isinstance(value, float) and (math.isnan(value) or (name == "float" and math.isinf(value)))


@pytest.mark.slow
@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("judge", [DUCKDB, CLICKHOUSE, PYICEBERG])
def test_a_predicate_finds_the_same_rows_pushed_down_or_not(lake: Lake, judge: str, name: str) -> None:
    check(lake, judge, name, COLUMNS[name])


@pytest.mark.long
@pytest.mark.parametrize("name", COLUMNS)
def test_a_predicate_finds_the_same_rows_in_spark(lake: Lake, name: str) -> None:
    check(lake, SPARK, name, COLUMNS[name])


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", TIMES)
@pytest.mark.parametrize("judge", [DUCKDB, PYICEBERG])
def test_a_predicate_on_a_time_finds_the_same_rows(times: Lake, judge: str, name: str) -> None:
    check(times, judge, name, TIMES[name])


@pytest.mark.slow
def test_most_files_are_skipped_for_each_point(spark: Any, lake: Lake) -> None:
    """Otherwise these tests would show little."""
    table = lake.open().java_table
    equal = spark._jvm.org.apache.iceberg.expressions.Expressions.equal
    whole = len(list(iterated(table.newScan())))
    assert whole >= FILES
    for name in ("int", "text", "char"):
        for value in COLUMNS[name].values:
            assert 1 <= len(list(iterated(table.newScan().filter(equal(name, value))))) <= whole // 2


def iterated(scan: Any) -> Iterator[Any]:
    found = scan.planFiles().iterator()
    while found.hasNext():
        yield found.next()
