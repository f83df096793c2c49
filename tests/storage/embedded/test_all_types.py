"""Tables with any columns: the log and KV snapshots give back every written bit."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from arrow_strategies import columns, record_batches, same
from embedded_tables import PATH, opened
from hypothesis import given, settings
from hypothesis import strategies as st

from fluss_tiering.formats.schema import UNIT_PRECISION, arrow_type
from fluss_tiering.model.data_type import WITH_PRECISION
from fluss_tiering.model.table import Column, DataType, DataTypeRoot, TableDescriptor, WriteKind

KEY = Column("key", DataType.parse("BIGINT NOT NULL"))


def whole_units(kind: DataType) -> DataType:
    """Return the type with the precision of its Arrow type, which no value exceeds."""
    if kind.fields:
        fields = (replace(field, data_type=whole_units(field.data_type)) for field in kind.fields)
        return replace(kind, fields=tuple(fields))
    if kind.root not in WITH_PRECISION or kind.root is DataTypeRoot.DECIMAL:
        return kind
    return replace(kind, precision=UNIT_PRECISION[arrow_type(kind).unit])


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_rows_of_any_columns_come_back(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    drawn = data.draw(columns(10, nesting=2))
    of = tuple(replace(column, data_type=whole_units(column.data_type)) for column in drawn)
    rows = data.draw(record_batches(of))
    keys = pa.array(range(rows.num_rows), pa.int64())
    keyed = pa.RecordBatch.from_arrays([keys, *rows.columns], names=["key", *rows.schema.names])
    with opened(tmp_path_factory.mktemp("log")) as storage:
        table = storage.create_table(PATH, TableDescriptor(of))
        storage.write(PATH, WriteKind.APPEND, pa.Table.from_batches([rows]))
        (info,) = storage.buckets(PATH)
        batches = list(storage.reader().read_log(table, info.bucket, 0, info.log_end_offset))
        assert [batch.records.num_rows for batch in batches] == [rows.num_rows] * bool(rows.num_rows)
        assert all(same(batch.records, rows) for batch in batches)
    with opened(tmp_path_factory.mktemp("kv")) as storage:
        table = storage.create_table(PATH, TableDescriptor((KEY, *of), primary_key=("key",)))
        storage.write(PATH, WriteKind.UPSERT, pa.Table.from_batches([keyed]))
        storage.write(PATH, WriteKind.UPSERT, pa.Table.from_batches([keyed]))
        for snapshot in storage.take_kv_snapshots(PATH):
            (found,) = storage.reader().read_kv_snapshot(table, snapshot, None, None)
            assert same(found.drop_columns(["key"]), rows)
