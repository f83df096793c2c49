"""Readers that are not ours find every row in files whose bounds are hard to make, and apply equality deletes there."""

from __future__ import annotations

import pyarrow as pa
import pytest
from lake_support import Lake

import fluss_tiering.lake.iceberg.parquet as writing
from judges import CLICKHOUSE, DUCKDB, SPARK, Days, Micros, Predicate

JUDGES = (DUCKDB, CLICKHOUSE, SPARK)


@pytest.fixture
def small_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch becomes a row group of its own."""
    monkeypatch.setattr(writing, "_MAX_BUFFERED_ROWS", 1)


@pytest.mark.parametrize("properties", [{}, {"write.metadata.metrics.default": "full"}], ids=["usual", "full"])
def test_a_long_key_hides_no_row_from_an_upsert(spark, tmp_path, small_row_groups, properties):  # D40
    lake = Lake(spark, tmp_path, {"k": "STRING NOT NULL", "v": "INT"}, ("k",), properties)
    lake.commit(
        lake.batch([{"k": "m", "v": 1}, {"k": "n", "v": 1}]),
        lake.batch([{"k": "a", "v": 1}, {"k": "y" * 5000, "v": 1}]),
    )
    lake.commit(lake.batch([{"k": "a", "v": 2}]), upsert=True)
    lake.commit(lake.batch([{"k": "y" * 5000, "v": 3}]), upsert=True)

    for judge in JUDGES:
        assert lake.values(judge, "v") == [1, 1, 2, 3], judge
        assert lake.values(judge, "v", Predicate("k", "=", "a")) == [2], judge


@pytest.mark.parametrize("kind", ["STRING", "BYTES", "ROW<x STRING>"])
def test_a_long_value_hides_no_row_from_a_filter(spark, tmp_path, small_row_groups, kind):  # D40
    def value(text: str):
        return {"STRING": text, "BYTES": text.encode()}.get(kind, {"x": text})

    column = "s" if kind != "ROW<x STRING>" else ("s", "x")
    lake = Lake(spark, tmp_path, {"id": "INT", "s": kind})
    groups = [["m", "n"], ["a", "z" * 4097], ["A" * 5000, "b"]]
    lake.commit(*(lake.batch({"id": ord(text[0]), "s": value(text)} for text in group) for group in groups))

    for judge in JUDGES:
        for text in ("a", "z" * 4097, "A" * 5000, "b", "m"):
            plain = text.encode() if kind == "BYTES" else text
            found = lake.values(judge, "id", Predicate(column, "=", plain))
            assert found == [ord(text[0])], (judge, text[0])
        assert lake.values(judge, "id", Predicate(column, ">", b"z" if kind == "BYTES" else "z")) == [ord("z")]


YEAR_10000 = 253_402_300_800_000_000
POISON = {
    "DATE": ([-(2**31) + 2, -719_163, 2_932_897, 2**31 - 2], Days),
    "TIMESTAMP(6)": ([-(2**62), -62_135_596_800_000_001, YEAR_10000, 2**62], Micros),
    "TIMESTAMP_LTZ(6)": (
        [-(2**62), -62_135_596_800_000_001, YEAR_10000, 2**62],
        lambda count: Micros(count, zoned=True),
    ),
}
"""Days and microseconds since the epoch, outside of the years 1 to 9999."""


@pytest.mark.parametrize("kind", POISON)
@pytest.mark.parametrize("as_key", [False, True])
@pytest.mark.sampled(2)
def test_dates_and_times_of_any_year_are_found(spark, tmp_path, kind, as_key):  # D41
    counts, literal = POISON[kind]
    lake = Lake(spark, tmp_path, {"id": "INT", "t": f"{kind}{' NOT NULL' if as_key else ''}"}, ("t",) if as_key else ())
    wanted = lake.batch([]).schema.field("t").type

    def batch(ids, values):
        plain = pa.array(values, pa.int32() if kind == "DATE" else pa.int64())
        return pa.record_batch([pa.array(ids, pa.int32()), plain.view(wanted)], names=["id", "t"])

    lake.commit(batch([1, 2, 3, 4], counts))
    if as_key:
        lake.commit(batch([30], counts[2:3]), upsert=True)
    ids = [1, 2, 30 if as_key else 3, 4]

    for judge in (DUCKDB, SPARK):  # ClickHouse has no such dates.
        assert lake.values(judge, "id") == sorted(ids), judge
        for number, count in zip(ids, counts, strict=True):
            assert lake.values(judge, "id", Predicate("t", "=", literal(count))) == [number], (judge, count)
        assert lake.values(judge, "id", Predicate("t", ">", literal(counts[2]))) == [4], judge


def test_a_nan_is_found_with_and_without_the_skipping_of_files(spark, tmp_path):  # D40
    lake = Lake(spark, tmp_path, {"id": "INT", "f": "FLOAT", "d": "DOUBLE", "r": "ROW<x DOUBLE>"})
    nan = float("nan")
    lake.commit(
        lake.batch(
            [
                {"id": 1, "f": 1.5, "d": 1.5, "r": {"x": 1.5}},
                {"id": 2, "f": nan, "d": nan, "r": {"x": nan}},
                {"id": 3, "f": None, "d": None, "r": None},
            ]
        )
    )
    lake.commit(lake.batch([{"id": 4, "f": -0.0, "d": -0.0, "r": {"x": -0.0}}]))
    # Iceberg skips a file of which it knows that it has only NaN.
    lake.commit(lake.batch([{"id": 5, "f": nan, "d": nan, "r": {"x": nan}}]))
    for column in ("f", "d", ("r", "x")):
        for push_down in (True, False):
            for judge in (DUCKDB, SPARK):
                # Both take NaN for the largest number. ClickHouse says that it equals nothing.
                assert lake.values(judge, "id", Predicate(column, ">", 2.0), push_down=push_down) == [2, 5]
                assert lake.values(judge, "id", Predicate(column, "=", nan), push_down=push_down) == [2, 5]
                assert lake.values(judge, "id", Predicate(column, "=", 0.0), push_down=push_down) == [4]
            assert lake.values(CLICKHOUSE, "id", Predicate(column, "<>", 1.5), push_down=push_down)[-3:] == [2, 4, 5]
            assert lake.values(CLICKHOUSE, "id", Predicate(column, "=", 0.0), push_down=push_down)[-1:] == [4]
