"""Rows that Fluss's own Python client wrote are read back: tables with random columns and random rows."""

import datetime as dt
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import arrow_strategies
import pyarrow as pa
import pytest
from fluss_reading import ObservedClient, bucket_of, snapshot_of
from fluss_tables import new_table
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fluss_support import FlussCluster
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.data_type import NESTED, Field
from fluss_tiering.model.table import Column, DataType, DataTypeRoot, TableDescriptor
from fluss_tiering.storage.fluss.reading.reader import FlussSplitReader
from fluss_tiering.storage.fluss.rpc.calls.cluster import metadata
from fluss_tiering.storage.fluss.rpc.calls.log import OffsetType, log_offset
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from fluss_tiering.storage.fluss.rpc.table_json import ClusterTable
from waiting import wait_until

TABLES = 4
"""The number of examples of each kind; each run of the tests has new ones."""
_SECONDS = 60
_EXAMPLES = settings(
    # The first example is always the simplest one.
    max_examples=2,
    phases=[Phase.generate],
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def python_values(data_type: DataType) -> st.SearchStrategy[Any]:
    """Values that fit into Python's types, with microseconds at most."""
    match data_type.root:
        case DataTypeRoot.DATE:
            return st.dates()
        case DataTypeRoot.TIME:
            return st.integers(0, 86_399_999).map(
                lambda ms: _floored(_EPOCH + ms * _MILLISECOND, min(data_type.precision, 3)).time()
            )
        case DataTypeRoot.TIMESTAMP | DataTypeRoot.TIMESTAMP_LTZ:
            zones = st.just(dt.UTC) if data_type.root is DataTypeRoot.TIMESTAMP_LTZ else st.none()
            times = st.datetimes(_EPOCH, _LATEST, timezones=zones)
            return times.map(lambda time: _floored(time, data_type.precision))
        case DataTypeRoot.ARRAY:
            (item,) = map(_or_null, data_type.fields)
            return st.lists(item, max_size=3)
        case DataTypeRoot.MAP:
            key, value = map(_or_null, data_type.fields)
            return st.lists(st.tuples(key, value), max_size=3)
        case DataTypeRoot.ROW:
            return st.fixed_dictionaries({field.name: _or_null(field) for field in data_type.fields})
        case _:
            return arrow_strategies.values_of(data_type)


def _or_null(part: Column | Field) -> st.SearchStrategy[Any]:
    values = python_values(part.data_type)
    return st.none() | values if part.data_type.nullable else values


# The client refuses times before 1970 that are no whole milliseconds.
_EPOCH, _LATEST = (dt.datetime.fromisoformat(f"{year}-01-01") for year in (1970, 2200))
_MILLISECOND = dt.timedelta(milliseconds=1)


def _floored(time: dt.datetime, precision: int) -> dt.datetime:
    return time.replace(microsecond=time.microsecond - time.microsecond % 10 ** max(0, 6 - precision))


@st.composite
def rows_of(draw: st.DrawFn, columns: Sequence[Column]) -> list[list[Any]]:
    """Rows that are numbered from 0 in the first column."""
    of_column = [_or_null(column) for column in columns[1:]]
    return [[number, *row] for number, row in enumerate(draw(st.lists(st.tuples(*of_column), max_size=30)))]


@st.composite
def keyed_columns(draw: st.DrawFn) -> tuple[Column, ...]:
    """A key, columns of any types, and a column of each nested type."""
    nested = [
        Column(root.lower(), draw(arrow_strategies.data_types(nesting=2, roots=[root])))
        for root in DataTypeRoot
        if root in NESTED
    ]
    return (Column("id", DataType.parse("BIGINT NOT NULL")), *draw(arrow_strategies.columns()), *nested)


def wait_for_leaders(fluss: FlussClient, made: ClusterTable) -> None:
    def all_led() -> bool:
        leaders = fluss.call(metadata([made.info.path])).leaders
        return bool(leaders) and None not in leaders.values()

    wait_until(all_led)


def write_with_pyfluss(cluster: FlussCluster, written: Sequence[tuple[ClusterTable, Any]]) -> None:
    tables = [(str(made.info.path), rows) for made, rows in written]
    program = Path(__file__).parents[2] / "support" / "pyfluss_writes.py"
    done = subprocess.run(
        [sys.executable, program, cluster.bootstrap],
        check=False,
        input=pickle.dumps(tables),
        capture_output=True,
        timeout=_SECONDS,
    )
    assert done.stdout.decode().split() == [path for path, _ in tables], done.stderr.decode()


def made_with(fluss: FlussClient, columns: tuple[Column, ...], *, primary_key: bool) -> ClusterTable:
    key = ("id",) if primary_key else ()
    made_from = TableDescriptor(columns=columns, primary_key=key, bucket_keys=key, num_buckets=1)
    return new_table(fluss, made_from, "oracle")


def log_of(fluss: FlussClient, made: ClusterTable) -> pa.Table:
    end = fluss.call(log_offset(made.info.path, bucket_of(made), OffsetType.LATEST))
    batches = FlussSplitReader(fluss).read_log(made.info, bucket_of(made), 0, end)
    return pa.Table.from_batches(
        [batch.records for batch in batches], schema=arrow_schema(made.info.descriptor.columns)
    )


def some_of_the_log(fluss: FlussClient, made: ClusterTable) -> None:
    """Reading every other column gives the same values; leaders can cut batches of pyfluss and of Fluss itself."""
    whole = log_of(fluss, made)
    names = whole.schema.names[::-2]
    if not whole.num_rows or len(names) == whole.num_columns:
        return
    observed = ObservedClient(fluss)
    batches = FlussSplitReader(observed).read_log(made.info, bucket_of(made), 0, whole.num_rows, names)
    same(pa.Table.from_batches([batch.records for batch in batches]), whole.select(names))
    assert None not in observed.projections


def rows_as_written(rows: Sequence[Sequence[Any]], columns: Sequence[Column]) -> pa.Table:
    arrays = []
    for index, field in enumerate(arrow_schema(columns)):
        values = [row[index] for row in rows]
        arrays.append(pa.array(values, field.type))
    return pa.Table.from_arrays(arrays, schema=arrow_schema(columns))


@st.composite
def tables_of(draw: st.DrawFn, rows: Callable[[Sequence[Column]], st.SearchStrategy[Any]]) -> list[tuple[Any, Any]]:
    """The columns and rows of some tables."""
    columns = [draw(keyed_columns()) for _ in range(TABLES)]
    return [(each, draw(rows(each))) for each in columns]


def as_stream(batch: pa.RecordBatch, columns: Sequence[Column]) -> bytes:
    """Return the rows as the client takes them: with a time zone if Fluss's type has a local one."""
    zoned = pa.schema(map(_zoned, batch.schema, columns))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, zoned) as writer:
        writer.write_batch(pa.ipc.read_record_batch(batch.serialize(), zoned))
    return sink.getvalue().to_pybytes()


def _zoned(field: pa.Field, of: Column | Field) -> pa.Field:
    parts = of.data_type.fields
    match of.data_type.root:
        case DataTypeRoot.TIMESTAMP_LTZ:
            kind = pa.timestamp(field.type.unit, "UTC")
        case DataTypeRoot.ARRAY:
            kind = pa.list_(_zoned(field.type.value_field, *parts))
        case DataTypeRoot.MAP:
            kind = pa.map_(*map(_zoned, (field.type.key_field, field.type.item_field), parts))
        case DataTypeRoot.ROW:
            kind = pa.struct(map(_zoned, field.type, parts))
        case _:
            return field
    return field.with_type(kind)


def same(found: pa.Table, expected: pa.Table) -> None:
    assert found.schema == expected.schema
    for field, left, right in zip(found.schema, found.columns, expected.columns, strict=True):
        ours, theirs = _in_one_batch(left), _in_one_batch(right)
        assert arrow_strategies.same(ours, theirs), f"{field}: {ours.to_pydict()} != {theirs.to_pydict()}"


def _in_one_batch(column: pa.ChunkedArray) -> pa.RecordBatch:
    return pa.record_batch([pa.concat_arrays(column.chunks or [pa.nulls(0, column.type)])], ["values"])


@pytest.mark.system
@_EXAMPLES
@given(tables_of(rows_of), tables_of(rows_of), tables_of(lambda columns: arrow_strategies.record_batches(columns, 50)))
def test_what_flusss_own_client_wrote_is_what_is_read(
    fluss: FlussClient, fluss_cluster: FlussCluster, keyed, appended, in_arrow
) -> None:
    tables = [(made_with(fluss, columns, primary_key=True), rows) for columns, rows in keyed]
    logs = [(made_with(fluss, columns, primary_key=False), rows) for columns, rows in appended]
    arrow_logs = [(made_with(fluss, columns, primary_key=False), batch) for columns, batch in in_arrow]
    # The client hung when it wrote to a table without a leader.
    for made, _ in (*tables, *logs, *arrow_logs):
        wait_for_leaders(fluss, made)
    streams = [(made, as_stream(batch, made.info.descriptor.columns)) for made, batch in arrow_logs if batch.num_rows]
    write_with_pyfluss(fluss_cluster, [*tables, *logs, *streams])
    for made, rows in logs:
        same(log_of(fluss, made), rows_as_written(rows, made.info.descriptor.columns))
    for made, batch in arrow_logs:
        same(log_of(fluss, made), pa.Table.from_batches([batch]))
    for made, _ in (*logs, *arrow_logs, *tables):
        some_of_the_log(fluss, made)
    for made, rows in tables:
        expected = rows_as_written(rows, made.info.descriptor.columns)
        same(log_of(fluss, made), expected)
        if rows:
            snapshot = snapshot_of(fluss, made, len(rows))
            found = FlussSplitReader(fluss).read_kv_snapshot(made.info, snapshot, None, None)
            same(pa.Table.from_batches(found).sort_by("id"), expected)
