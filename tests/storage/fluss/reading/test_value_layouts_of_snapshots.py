"""KV snapshots whose values have a tag, or a layout that is not known: RocksDB files with bytes that Fluss made.

Only coordinators of Fluss 1.0.0 choose the layout. A cluster's answers are therefore altered: the table has the option,
and a snapshot has the files of a RocksDB of the test.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fluss_reading import AlteringClient, kv_table, snapshot_of
from fluss_tables import COLUMNS, rows, upsert
from refusals import refused
from tagged_values import tagged_files

from fluss_tiering.formats.compacted.row import decode_values
from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.table import KvSnapshot, TableInfo
from fluss_tiering.storage.fluss.buckets import ClusterBuckets
from fluss_tiering.storage.fluss.reading.reader import FlussSplitReader
from fluss_tiering.storage.fluss.reading.remote_files import RemoteFiles
from fluss_tiering.storage.fluss.rpc.calls.kv import KvSnapshotFiles
from fluss_tiering.storage.fluss.rpc.client import FlussClient, ParallelCalls
from fluss_tiering.storage.fluss.rpc.table_json import ClusterTable
from fluss_tiering.storage.fluss.scans import ClusterScans

COUNT = 1000
OPTION = "table.kv.value-layout-version"


def with_layout(table: TableInfo, version: str) -> TableInfo:
    properties = {**table.descriptor.properties, OPTION: version}
    return replace(table, descriptor=replace(table.descriptor, properties=properties))


def later_changes(fluss: FlussClient, table: TableInfo) -> None:
    upsert(fluss, ClusterTable(table), rows(COUNT, COUNT + 5), deleted=[0])


@pytest.fixture
def tagged(fluss: FlussClient, tmp_path: Path) -> tuple[TableInfo, KvSnapshot, AlteringClient]:
    """A table with a snapshot of tagged values, and a client that sees it."""
    made, snapshot = kv_table(fluss, COUNT)
    files = tagged_files(tmp_path / "db", COUNT)
    assert sum(name.endswith(".sst") for name in files) == 4
    # The cluster takes snapshots by itself, so that the newest one may have what `later_changes` has written.
    later = tagged_files(tmp_path / "later", COUNT + 5, without=[0])

    def alter(answer: Any) -> Any:
        if not isinstance(answer, KvSnapshotFiles):
            return answer
        return replace(answer, files=files if answer.log_offset <= snapshot.log_offset else later)

    return with_layout(made.info, "2"), snapshot, AlteringClient(fluss, alter)


def read(reader: FlussSplitReader, table: TableInfo, snapshot: KvSnapshot, **bounds: bytes | None) -> list[dict]:
    batches = reader.read_kv_snapshot(table, snapshot, bounds.get("from_key"), bounds.get("to_key"))
    return sorted((row for batch in batches for row in batch.to_pylist()), key=lambda row: row["id"])


def test_tagged_values_of_a_snapshot_are_read(tagged: tuple[TableInfo, KvSnapshot, AlteringClient]) -> None:
    table, snapshot, client = tagged
    reader = FlussSplitReader(client)
    assert read(reader, table, snapshot) == rows(0, COUNT).to_pylist()
    measured = reader.measure_kv_snapshot(table, snapshot)
    assert measured.size_bytes > 10 * COUNT
    middle = (500).to_bytes(8, "little")
    parts = [read(reader, table, snapshot, to_key=middle), read(reader, table, snapshot, from_key=middle)]
    assert all(parts)
    assert sorted(row["id"] for part in parts for row in part) == list(range(COUNT))


def test_a_scan_has_no_tags(tagged: tuple[TableInfo, KvSnapshot, AlteringClient], fluss: FlussClient) -> None:
    table, snapshot, client = tagged
    later_changes(fluss, table)
    calls = ParallelCalls()
    scans = ClusterScans(client, calls, RemoteFiles(), ClusterBuckets(client, calls))
    _, scan = scans.open(table, snapshot.bucket, admit=lambda: None, on_lost=lambda: None)
    assert scan is not None
    values = scan.read(None, None, None).values
    scan.close()
    calls.close()
    found = decode_values(values, COLUMNS, table.schema_id)
    assert sorted(found.to_pylist(), key=lambda row: row["id"]) == rows(1, COUNT + 5).to_pylist()


def test_a_tag_where_none_is_expected_is_damage(tagged: tuple[TableInfo, KvSnapshot, AlteringClient]) -> None:
    table, snapshot, client = tagged
    # The first bytes of the tag are taken for a schema id.
    with refused(ErrorCode.INVALID_REQUEST, "SCHEMA_NOT_EXIST", str(table.path), "schema id 0"):
        read(FlussSplitReader(client), with_layout(table, "1"), snapshot)


@pytest.mark.parametrize("version", ["3", "0", "x", ""])
def test_a_snapshot_of_an_unknown_layout_is_refused_and_the_log_is_read(fluss: FlussClient, version: str) -> None:
    made, snapshot = kv_table(fluss, 5)
    table = with_layout(made.info, version)
    reader = FlussSplitReader(fluss)
    expected = (str(table.path), f"{OPTION}={version}:", "expected 1 or 2", "upgrade")
    with refused(ErrorCode.INVALID_TABLE, *expected):
        read(reader, table, snapshot)
    with refused(ErrorCode.INVALID_TABLE, *expected):
        reader.measure_kv_snapshot(table, snapshot)
    log = reader.read_log(table, snapshot.bucket, 0, 5)
    assert pa.Table.from_batches([batch.records for batch in log]).num_rows == 5
    # The snapshot is fine, so it can be read once the layout is known.
    assert read(reader, with_layout(table, "1"), snapshot_of(fluss, made, 5)) == rows(0, 5).to_pylist()
