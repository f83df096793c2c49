"""Log batches that are left out by their statistics, by leaders and here, never have a row that a query wants."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from fluss_reading import ObservedClient, bucket_of, wait_until_moved
from fluss_tables import append, new_path
from pyspark.sql import datasource as ds
from refusals import refused

from fluss_java_client import FlussJavaClient
from fluss_support import FlussCluster
from fluss_tiering.formats.log.batch import LogBatch, read_header
from fluss_tiering.formats.log.conditions import Condition, InRanges, Nullness, Range
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.table import Column, TableBucket
from fluss_tiering.spark.source.batches import spark_arrow_schema, spark_rows
from fluss_tiering.spark.source.filters import can_evaluate, matching
from fluss_tiering.spark.source.pruning import conditions_of
from fluss_tiering.storage.fluss.reading import log_chunks
from fluss_tiering.storage.fluss.reading.log_chunks import LogChunk
from fluss_tiering.storage.fluss.reading.reader import FlussSplitReader
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey
from fluss_tiering.storage.fluss.rpc.calls.log import fetch_log
from fluss_tiering.storage.fluss.rpc.calls.tables import table
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from fluss_tiering.storage.fluss.rpc.table_json import ClusterTable

pytestmark = pytest.mark.fluss_versions("1.0")

_MOVED: Final = {"table.log.tiered.local-segments": "1", "table.log.arrow.compression.type": "NONE"}
_BATCHES: Final = 30
_ROWS: Final = 5
_EDGES: Final[dict[str, tuple[str, list[Any]]]] = {
    "yes": ("BOOLEAN", [True, False]),
    "tiny": ("TINYINT", [-128, -1, 0, 1, 127]),
    "small": ("SMALLINT", [-(2**15), -1, 0, 300, 2**15 - 1]),
    "number": ("INT", [-(2**31), -1, 0, 1, 2**31 - 1]),
    "big": ("BIGINT", [-(2**63), -1, 0, 1, 2**63 - 1]),
    "single": ("FLOAT", ["NaN", "-Infinity", -1.5, -0.0, 0.0, 2**-149, 0.5, 3.0, "Infinity"]),
    "double": ("DOUBLE", ["NaN", "-Infinity", -1.5, -0.0, 0.0, 5e-324, 0.1, 3.0, "Infinity"]),
    "name": ("STRING", ["", "a", "a\0", "ab", "abc", "b", "é", "\ud7ff", "\ue000", "\uffff", "😀", "\U0010ffff"]),
    "day": ("DATE", ["1969-12-31", "1970-01-01", "2024-02-29", "0001-01-01", "9999-12-31"]),
    "second": ("TIMESTAMP(0)", ["1970-01-01T00:00:01.500", "1969-12-31T23:59:58.500", "2024-02-29T12:00:00.999"]),
    "milli": ("TIMESTAMP(3)", ["1970-01-01T00:00:00.001", "1969-12-31T23:59:59.999", "2024-02-29T12:00:00.001500"]),
    "micro": (
        "TIMESTAMP(6)",
        ["1970-01-01T00:00:00.000001", "1969-12-31T23:59:59.999999", "2024-02-29T12:00:00.1234567"],
    ),
    "nano": ("TIMESTAMP(9)", ["1970-01-01T00:00:00.000000001", "1969-12-31T23:59:59.999999999", "2024-02-29T12:00:00"]),
    "seen": (
        "TIMESTAMP_LTZ(6)",
        ["1970-01-01T00:00:00.000001Z", "1969-12-31T23:59:59.999999Z", "2024-02-29T12:00:00.1234567Z"],
    ),
    "total": ("DECIMAL(10, 2)", ["-99999999.99", "-0.01", "0.00", "1.50", "99999999.99"]),
    "wide": ("DECIMAL(38, 3)", ["-12345678901234567890123.456", "-0.001", "0.000", "128.000", "9" * 24 + ".999"]),
    "raw": ("BYTES", ["", "00", "ff"]),
    "code": ("CHAR(3)", ["a", "b", "é"]),
    "part": ("TIME(3)", ["00:00:00", "23:59:59.999"]),
}
_COMPARED: Final = (
    ds.EqualTo,
    ds.EqualNullSafe,
    ds.GreaterThan,
    ds.GreaterThanOrEqual,
    ds.LessThan,
    ds.LessThanOrEqual,
)


def edge_rows(chance: random.Random) -> list[list[Any]]:
    """Rows of a batch. In each column a batch has few of the values, nulls among them, or nulls alone."""
    columns = []
    for _, values in _EDGES.values():
        some = chance.choices(values, k=chance.choice([1, 1, 2])) + [None] * chance.choice([0, 0, 1])
        columns.append([None] * _ROWS if chance.random() < 0.1 else chance.choices(some, k=_ROWS))
    return [list(row) for row in zip(*columns, strict=True)]


@pytest.fixture(scope="module", params=["local", "remote"])
def edges(request, fluss_cluster, java_client: FlussJavaClient) -> ClusterTable:
    """A log of small batches with values at the edges of each type, in segments of a leader or remote ones."""
    path = new_path("edges")
    options = {"table.statistics.columns": ",".join(name for name in _EDGES if name not in {"raw", "code"})}
    if request.param == "remote":
        options |= _MOVED
    java_client.create(path, {name: text for name, (text, _) in _EDGES.items()}, properties=options)
    chance = random.Random(7)
    for _ in range(_BATCHES):
        java_client.append(path, edge_rows(chance))
    with FlussClient(fluss_cluster.bootstrap) as client:
        made = client.call(table(path))
        if request.param == "remote":
            # Rows without statistics push the segments before them into the remote folder.
            filling = pa.RecordBatch.from_pylist(
                [dict.fromkeys(_EDGES) | {"raw": b"x" * 1000}] * 100, schema=arrow_schema(made.info.descriptor.columns)
            )
            for _ in range(3):
                append(client, made, filling, compression="NONE")
            wait_until_moved(client, made)
        return made


def read_edges(
    client: Any, made: ClusterTable, conditions: Sequence[Condition], columns: Sequence[str] | None = None
) -> list[LogBatch]:
    reader = FlussSplitReader(client)
    end = _BATCHES * _ROWS
    return list(reader.read_log(made.info, bucket_of(made), 0, end, columns, conditions=conditions))


def matched(made: ClusterTable, batches: Sequence[LogBatch], filters: Sequence[ds.Filter]) -> list[tuple[int, str]]:
    """The offset and the values of each row that matches. A float is compared by its digits: NaN is NaN."""
    columns = made.info.descriptor.columns
    found = []
    for batch in batches:
        rows = spark_rows(batch.records, columns)
        offsets = pa.array(range(batch.base_offset, batch.base_offset + rows.num_rows))
        kept = matching(rows.append_column("__offset", offsets), filters)
        found += [(row.pop("__offset"), repr(row)) for row in kept.to_pylist()]
    return found


def random_filter(chance: random.Random, values: Sequence[Any], name: str) -> ds.Filter:
    known = [value for value in values if value is not None]
    kind = chance.choice([*_COMPARED, ds.In, ds.IsNull, ds.IsNotNull, ds.StringStartsWith])
    if kind in {ds.IsNull, ds.IsNotNull}:
        made: ds.Filter = kind((name,))
        return ds.Not(made) if chance.random() < 0.3 else made
    if kind is ds.In:
        return ds.In((name,), tuple(chance.choices(known, k=chance.choice([1, 3]))))
    value = chance.choice(known)
    if kind is ds.StringStartsWith:
        return ds.StringStartsWith((name,), str(value)[: chance.choice([0, 1, 2])])
    return kind((name,), value)


@pytest.mark.long
def test_a_filter_finds_what_it_finds_without_pruning(
    fluss: FlussClient, fluss_cluster: FlussCluster, edges: ClusterTable
) -> None:
    everything = read_edges(fluss, edges, ())
    assert sum(batch.records.num_rows for batch in everything) == _BATCHES * _ROWS
    columns = edges.info.descriptor.columns
    rows = pa.Table.from_batches([spark_rows(batch.records, columns) for batch in everything])
    schema = spark_arrow_schema(columns)
    chance = random.Random(11)
    tried, left_out = Counter[str](), Counter[str]()
    for name in _EDGES:
        values = rows.column(name).unique().to_pylist()
        for _ in range(40):
            each = random_filter(chance, values, name)
            if not can_evaluate(each, schema) or (
                isinstance(each, ds.StringStartsWith) and name not in {"name", "code"}
            ):
                continue
            filters = [each, ds.IsNotNull(("number",))] if chance.random() < 0.2 else [each]
            pruned = read_edges(fluss, edges, conditions_of(filters, columns))
            assert matched(edges, pruned, filters) == matched(edges, everything, filters), filters
            tried[name] += 1
            left_out[name] += (len(everything) - len(pruned)) if len(filters) == 1 else 0
    assert set(tried) == set(_EDGES)
    # There are no statistics of these.
    assert {name for name in _EDGES if not left_out[name]} == {"raw", "code"}
    for server in fluss_cluster.tablet_servers:
        assert "Failed to initialize filter" not in server.log_file.read_text()


_UNSENT = {"single", "double", "raw", "code", "part"}


@pytest.mark.parametrize("edges", ["local"], indirect=True)
def test_a_leader_sends_fewer_bytes(fluss: FlussClient, edges: ClusterTable) -> None:
    columns = edges.info.descriptor.columns
    everything = read_edges(fluss, edges, ())
    whole = bytes_at_leader(fluss, edges)
    rows = pa.Table.from_batches([spark_rows(batch.records, columns) for batch in everything])
    for name in _EDGES:
        values = [value for value in rows.column(name).unique().to_pylist() if value is not None]
        equal = [each for each in (ds.EqualTo((name,), value) for value in values) if _is_used(each, columns)]
        observed = ObservedClient(fluss)
        for each in equal:
            read_edges(observed, edges, conditions_of([each], columns))
        if name in _UNSENT:
            # Without a filter, a leader names remote segments instead of sending the log.
            assert observed.records_bytes <= len(equal) * whole, name
        else:
            assert 0 < observed.records_bytes < 0.7 * len(equal) * whole, name


def bytes_at_leader(fluss: FlussClient, made: ClusterTable) -> int:
    """The size of the whole log, which its leader has itself."""
    size = offset = 0
    while offset < _BATCHES * _ROWS:
        records = memoryview(fluss.call(fetch_log(made.info.path, bucket_of(made), offset)).records)
        position = 0
        while (header := read_header(records, position)) is not None:
            position += header.size
            offset = header.next_offset
        size += position
    return size


def _is_used(condition: ds.Filter, columns: Sequence[Column]) -> bool:
    return can_evaluate(condition, spark_arrow_schema(columns))


_COLUMNS: Final = {"id": "BIGINT NOT NULL", "name": "STRING", "price": "DOUBLE"}


def numbered(fluss: FlussClient, java: FlussJavaClient, batches: int = 20, **properties: str) -> ClusterTable:
    """Make a log whose batches have a hundred ids each, one after the other.

    The Java client cuts a batch that it fills too slowly. Another log is made in that case.
    """
    for _ in range(5):
        path = new_path("numbered")
        java.create(path, _COLUMNS, properties={"table.statistics.columns": "id", **properties})
        for first in range(0, 100 * batches, 100):
            java.append(path, [[each, f"name {each}", each / 2] for each in range(first, first + 100)])
        made = fluss.call(table(path))
        fetched = fluss.call(fetch_log(path, TableBucket(made.info.table_id, 0), 0, max_bytes=1 << 24))
        found = LogChunk(memoryview(fetched.records), 0, str(path)).batches()
        if all(header.next_offset - header.base_offset == 100 for _, header in found):
            return made
    raise AssertionError("the Java client cuts its batches again and again")


def ids(
    client: Any,
    made: ClusterTable,
    wanted: Range,
    columns: Sequence[str] | None = None,
    span: tuple[int, int] = (0, 2000),
) -> list[int]:
    conditions = (InRanges("id", (wanted,)),)
    batches = FlussSplitReader(client).read_log(made.info, bucket_of(made), *span, columns, conditions=conditions)
    return [each for batch in batches for each in batch.records.column("id").to_pylist()]


@pytest.mark.parametrize("columns", [None, ["id"], ["price", "id"]])
def test_a_scan_ends_wherever_the_batches_are_that_match(
    fluss: FlussClient, java_client: FlussJavaClient, columns: list[str] | None
) -> None:
    made = numbered(fluss, java_client)
    whole, pruned = ObservedClient(fluss), ObservedClient(fluss)
    # With a filter, leaders are asked for everything.
    assert ids(whole, made, Range(), columns) == list(range(2000))
    for wanted, first, end in (
        (Range(0, 0), 0, 100),
        (Range(1950, None), 1900, 2000),
        (Range(450, 650), 400, 700),
        (Range(2000, None), 0, 0),
        (Range(None, -1), 0, 0),
        (Range(), 0, 2000),
    ):
        observed = ObservedClient(fluss)
        assert ids(observed, made, wanted, columns) == list(range(first, end))
        # The leader sends the batches that match, and no others.
        assert observed.records_bytes == pytest.approx(whole.records_bytes * (end - first) / 2000, rel=0.05)
    assert ids(pruned, made, Range(450, 650), columns, (470, 640)) == list(range(470, 640))
    assert ids(pruned, made, Range(450, 650), columns, (700, 2000)) == []
    assert ids(pruned, made, Range(450, 650), columns, (650, 651)) == [650]


def test_few_answers_suffice_where_little_matches(
    fluss: FlussClient, java_client: FlussJavaClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader goes on behind what it leaves out, so that a long log takes few calls, and none is skipped."""
    monkeypatch.setattr(log_chunks, "FETCH_BYTES", 4000)
    made = numbered(fluss, java_client)
    whole, pruned = ObservedClient(fluss), ObservedClient(fluss)
    assert ids(whole, made, Range()) == list(range(2000))
    assert ids(pruned, made, Range(750, 1250)) == list(range(700, 1300))
    assert len(pruned.projections) < len(whole.projections)


def test_a_server_that_does_not_know_filters_changes_no_row(fluss: FlussClient, java_client: FlussJavaClient) -> None:
    made = numbered(fluss, java_client)

    class Old:
        """A server of an older version, which ignores fields that it does not know."""

        def call(self, call: Any) -> Any:
            if call.api is ApiKey.FETCH_LOG:
                for asked in call.request.tables_req:
                    assert asked.filter_schema_id == made.info.schema_id
                    asked.ClearField("filter_predicate")
                    asked.ClearField("filter_schema_id")
            return fluss.call(call)

    # What the leader sends as a whole has statistics, by which batches are left out here.
    assert ids(Old(), made, Range(450, 650)) == list(range(400, 700))
    # A leader that cuts batches to some columns takes the statistics away.
    assert ids(Old(), made, Range(450, 650), ["id"]) == list(range(2000))


def test_batches_without_statistics_are_always_read(fluss: FlussClient, java_client: FlussJavaClient) -> None:
    made = numbered(fluss, java_client, batches=2)
    schema = arrow_schema(made.info.descriptor.columns)
    ours = [{"id": each, "name": None, "price": None} for each in range(200, 300)]
    append(fluss, made, pa.RecordBatch.from_pylist(ours, schema), compression="ZSTD")
    java_client.append(made.info.path, [[each, None, None] for each in range(300, 400)])
    assert ids(fluss, made, Range(5, 5), span=(0, 400)) == [*range(100), *range(200, 300)]
    assert ids(fluss, made, Range(5, 5), ["id"], span=(0, 400)) == [*range(100), *range(200, 300)]


def test_columns_with_statistics_change(fluss: FlussClient, java_client: FlussJavaClient) -> None:
    made = numbered(fluss, java_client, batches=2)
    java_client.set_option(made.info.path, "table.statistics.columns", "name")
    java_client.append(made.info.path, [[each, None, None] for each in range(200, 300)])
    made = fluss.call(table(made.info.path))
    # No leader is asked, but the statistics of older batches are still known.
    assert ids(fluss, made, Range(5, 5), span=(0, 300)) == [*range(100), *range(200, 300)]
    conditions = (Nullness("name", is_null=False),)
    batches = FlussSplitReader(fluss).read_log(made.info, bucket_of(made), 0, 300, conditions=conditions)
    assert [batch.base_offset for batch in batches] == [0, 100]
    java_client.set_option(made.info.path, "table.statistics.columns", None)
    made = fluss.call(table(made.info.path))
    assert ids(fluss, made, Range(5, 5), span=(0, 300)) == [*range(100), *range(200, 300)]


def test_a_column_that_older_batches_do_not_have(fluss: FlussClient, java_client: FlussJavaClient) -> None:
    made = numbered(fluss, java_client, batches=2, **{"table.statistics.columns": "*"})
    java_client.add_column(made.info.path, "more", "INT")
    for first in (200, 300):
        java_client.append(made.info.path, [[each, None, None, each] for each in range(first, first + 100)])
    made = fluss.call(table(made.info.path))
    reader = FlussSplitReader(fluss)
    for conditions, expected in (
        # Rows of older batches have null in it, which no statistics say.
        ((InRanges("more", (Range(350, 350),)),), [0, 100, 300]),
        ((Nullness("more", is_null=True),), [0, 100]),
        ((Nullness("more", is_null=False), InRanges("id", (Range(150, 250),))), [100, 200]),
    ):
        batches = list(reader.read_log(made.info, bucket_of(made), 0, 400, conditions=conditions))
        assert [batch.base_offset for batch in batches] == expected
        for columns in (["id", "more"], ["id"]):
            # The leader does not evaluate such conditions on older batches, and takes the statistics away.
            batches = list(reader.read_log(made.info, bucket_of(made), 0, 400, columns, conditions=conditions))
            assert {batch.base_offset for batch in batches} >= set(expected)


def test_damage_is_told_where_statistics_would_leave_it_out(fluss: FlussClient, java_client: FlussJavaClient) -> None:
    made = numbered(fluss, java_client, batches=40, **_MOVED)
    wait_until_moved(fluss, made)
    reader = FlussSplitReader(fluss)
    conditions = (InRanges("id", (Range(150, 150),)),)
    segment = Path(
        fluss.call(fetch_log(made.info.path, bucket_of(made), 0)).remote_segments[0].path.removeprefix("file:")
    )
    data = bytearray(segment.read_bytes())
    header = read_header(memoryview(data), 0)
    assert header is not None
    # The greatest id of the first batch, at the end of the statistics.
    data[header.change_types_start - 8] ^= 1
    segment.write_bytes(data)
    with refused(ErrorCode.CORRUPT_DATA, "checksum", segment.name):
        list(reader.read_log(made.info, bucket_of(made), 0, 300, conditions=conditions))


def test_remote_segments_are_decoded_only_where_they_may_match(
    fluss: FlussClient, java_client: FlussJavaClient
) -> None:
    made = numbered(fluss, java_client, batches=40, **_MOVED)
    wait_until_moved(fluss, made)
    end = fluss.call(fetch_log(made.info.path, bucket_of(made), 0)).remote_segments[0].end_offset
    assert end > 200
    for columns in (None, ["id"]):
        assert ids(fluss, made, Range(150, 150), columns, (0, end)) == list(range(100, 200))
        assert ids(fluss, made, Range(5000, None), columns, (0, end)) == []
