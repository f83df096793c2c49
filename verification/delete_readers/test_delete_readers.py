"""Which engine reads which kind of deletes. `make delete-readers` writes the answers of these tests into a page.

An engine either finds the rows of the model in each snapshot, or refuses the table. None may find other rows.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterable

import pytest
from deleted_rows import DeletedRows
from fluss_lake_reader import FlussLakeReader

import judges
from fluss_tiering.lake.iceberg.java import jvm_of
from judges import CLICKHOUSE, DUCKDB, PYICEBERG, SPARK, Predicate

ENGINES = (SPARK, DUCKDB, CLICKHOUSE, PYICEBERG)
REFUSED = {
    (PYICEBERG, "v2-equality"): "PyIceberg does not yet support equality deletes",
    (PYICEBERG, "v3-equality"): "PyIceberg does not yet support equality deletes",
    (CLICKHOUSE, "v3-vectors"): "Position deletes are supported only for parquet format",
    (CLICKHOUSE, "v3-after-upgrade"): "Position deletes are supported only for parquet format",
}
"""What engines refuse, and how they say so."""
KEY = 1
"""The position of the column with the keys."""


def by_key(table: DeletedRows) -> None:
    first, second = table.add(range(100), range(100, 200))
    table.delete_by_key({first: [0, 99, 40], second: [7]})
    table.delete_by_key({first: range(50)})


def by_position(table: DeletedRows) -> None:
    first, second = table.add(range(100), range(100, 200))
    table.delete({first: [0, 99, 40], second: [7]})
    table.delete({first: range(50)})
    (third,) = table.add(range(200, 210))
    table.delete({second: range(100), third: [5]})


def of_many_files(table: DeletedRows) -> None:
    files = table.add(*(range(start, start + 10) for start in range(0, 120, 10)))
    table.delete_together({file: [0, number % 10] for number, file in enumerate(files)})
    table.delete_together({file: [9] for file in files[:9]})


def after_an_upgrade(table: DeletedRows) -> None:
    files = table.add(*(range(start, start + 10) for start in range(0, 120, 10)))
    table.delete_together({file: [3] for file in files})
    table.delete({files[0]: [9], files[1]: [0]})
    table.upgrade(3)
    table.delete({files[0]: [0], files[2]: [1]})


KINDS: dict[str, tuple[int, Callable[[DeletedRows], None]]] = {
    "v2-equality": (2, by_key),
    "v2-positions": (2, by_position),
    "v2-positions-of-many-files": (2, of_many_files),
    "v3-equality": (3, by_key),
    "v3-vectors": (3, by_position),
    "v3-after-upgrade": (2, after_an_upgrade),
}
_TABLES: dict[str, DeletedRows] = {}


@pytest.fixture(params=KINDS)
def kind(request) -> str:
    return request.param


@pytest.fixture
def table(spark, kind, tmp_path_factory) -> DeletedRows:
    """The table of this kind, which all engines read."""
    if kind not in _TABLES:
        version, fill = KINDS[kind]
        _TABLES[kind] = DeletedRows(spark, tmp_path_factory.mktemp(kind), version)
        fill(_TABLES[kind])
    return _TABLES[kind]


@pytest.fixture
def answers(request) -> Callable[[str, str, str], None]:
    """Notes for the page what an engine answers, unless the test fails."""

    def note(engine: str, kind: str, answer: str) -> None:
        # As `record_property` does, which is not meant for the form of files that pytest writes.
        request.node.user_properties += [("engine", engine), ("kind", kind), ("answer", answer)]

    return note


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_finds_the_rows_of_each_snapshot(engine, kind, table, answers):
    refusal = REFUSED.get((engine, kind))
    answers(name_of(engine, table.spark), kind, refusal or "yes")
    if refusal:
        with pytest.raises(Exception, match=refusal):
            keys(engine, table, table.metadata)
        return
    for metadata, expected in table.history.items():
        assert sorted(keys(engine, table, metadata)) == expected
    for predicate in (Predicate("k", "=", 60), Predicate("k", ">=", 95), Predicate("v", "=", "value 1")):
        expected = [key for key in table.live() if holds(predicate, key)]
        for push_down in (True, False) if engine in judges.WITHOUT_JVM else (True,):
            found = keys(engine, table, table.metadata, [predicate], push_down=push_down)
            assert sorted(found) == expected, (predicate, push_down)


def name_of(engine: str, spark) -> str:
    if engine == SPARK:
        iceberg = jvm_of(spark).org.apache.iceberg.IcebergBuild.version()
        return f"Spark {spark.version} with Iceberg {iceberg}"
    if engine == CLICKHOUSE:
        return f"ClickHouse {importlib.metadata.version('chdb-core')}"
    return f"{ {DUCKDB: 'DuckDB', PYICEBERG: 'PyIceberg'}[engine] } {importlib.metadata.version(engine)}"


def keys(engine: str, table: DeletedRows, metadata: str, where: Iterable[Predicate] = (), **how: bool) -> list[int]:
    rows = judges.read(engine, metadata, list(where), columns=["k"], spark=table.spark, **how)
    return rows.column("k").to_pylist()


def holds(predicate: Predicate, key: int) -> bool:
    if predicate.column == "v":
        return f"value {key}" == predicate.value
    return key == predicate.value if predicate.operator == "=" else key >= predicate.value


@pytest.fixture(scope="session")
def fluss_lake_reader(fluss_version, tmp_path_factory) -> FlussLakeReader:
    return FlussLakeReader(tmp_path_factory.mktemp("fluss-lake-reader"), fluss_version)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.system
def test_fluss_s_lake_reader_finds_the_rows(fluss_version, fluss_lake_reader, kind, table, answers):
    answers(f"Fluss's Java reader {fluss_version}", kind, "yes")
    for metadata, expected in list(table.history.items())[-2:]:
        assert sorted(fluss_lake_reader.keys(table.folder, table.snapshots[metadata], KEY)) == expected
