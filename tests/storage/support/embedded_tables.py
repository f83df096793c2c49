"""Tables of the embedded storage, and how tests write and read their rows."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from fluss_tiering.formats.log.batch import ChangeType, LogBatch
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.table import Column, DataType, TableBucket, TableDescriptor, TableInfo, TablePath, WriteKind
from fluss_tiering.storage.embedded.storage import EmbeddedStorage
from fluss_tiering.storage.protocol import SplitReader

PATH = TablePath("shop", "orders")


class TurnedClock:
    """A clock that changes only when a test sets it."""

    def __init__(self, now: int = 1_700_000_000_000) -> None:
        self.now = now

    def now_ms(self) -> int:
        return self.now


def columns(**types: str) -> tuple[Column, ...]:
    return tuple(Column(name, DataType.parse(text)) for name, text in types.items())


LOG_COLUMNS = columns(id="BIGINT NOT NULL", name="STRING")
KV_COLUMNS = columns(id="INT NOT NULL", region="STRING NOT NULL", name="STRING", amount="DECIMAL(10, 2)")


def log_table(num_buckets: int = 1, **others: Any) -> TableDescriptor:
    return TableDescriptor(LOG_COLUMNS, num_buckets=num_buckets, **others)


def kv_table(num_buckets: int = 1, **others: Any) -> TableDescriptor:
    return TableDescriptor(
        KV_COLUMNS, primary_key=("id", "region"), bucket_keys=("id",), num_buckets=num_buckets, **others
    )


def log_rows(start: int, stop: int) -> pa.Table:
    return pa.table(
        {"id": pa.array(range(start, stop), pa.int64()), "name": [f"row {value}" for value in range(start, stop)]},
        schema=arrow_schema(LOG_COLUMNS),
    )


def kv_rows(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist([{"region": "eu", **row} for row in rows], schema=arrow_schema(KV_COLUMNS))


def kv_keys(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int32()), "region": ["eu"] * len(ids)})


def open_storage(folder: Path, **options: Any) -> EmbeddedStorage:
    return EmbeddedStorage.open(folder, clock=options.pop("clock", TurnedClock()), **options)


@contextmanager
def opened(folder: Path, **options: Any) -> Iterator[EmbeddedStorage]:
    storage = open_storage(folder, **options)
    try:
        yield storage
    finally:
        storage.close()


@contextmanager
def storage_with(
    folder: Path, descriptor: TableDescriptor, rows: pa.Table | None = None, **options: Any
) -> Iterator[EmbeddedStorage]:
    """Open a storage with a new table, and with these rows in it."""
    with opened(folder, **options) as storage:
        table = storage.create_table(PATH, descriptor)
        if rows is not None:
            storage.write(PATH, WriteKind.UPSERT if table.has_primary_key else WriteKind.APPEND, rows)
        yield storage


def end_offsets(storage: EmbeddedStorage, path: TablePath = PATH) -> list[int]:
    return [bucket.log_end_offset for bucket in storage.buckets(path)]


def read_log(
    reader: SplitReader,
    table: TableInfo,
    bucket: int,
    start_offset: int,
    end_offset: int,
    columns: Sequence[str] | None = None,
) -> list[LogBatch]:
    return list(reader.read_log(table, TableBucket(table.table_id, bucket), start_offset, end_offset, columns))


def read_rows(storage: EmbeddedStorage, path: TablePath = PATH) -> list[dict[str, Any]]:
    """Return all rows of a log table, bucket by bucket."""
    table = storage.table(path)
    return [
        row
        for info in storage.buckets(path)
        for batch in storage.reader().read_log(table, info.bucket, info.log_start_offset, info.log_end_offset)
        for row in batch.records.to_pylist()
    ]


def read_changes(storage: EmbeddedStorage, bucket: int = 0, start_offset: int = 0) -> list[tuple[str, dict[str, Any]]]:
    """Return the changelog of a bucket as pairs of change and row."""
    table = storage.table(PATH)
    end_offset = end_offsets(storage)[bucket]
    names = {
        ChangeType.INSERT: "+I",
        ChangeType.UPDATE_BEFORE: "-U",
        ChangeType.UPDATE_AFTER: "+U",
        ChangeType.DELETE: "-D",
    }
    return [
        (names[ChangeType(kind)], row)
        for batch in read_log(storage.reader(), table, bucket, start_offset, end_offset)
        for kind, row in zip(batch.change_types, batch.records.to_pylist(), strict=True)
    ]


def replayed(changes: Sequence[tuple[str, dict[str, Any]]], state: dict[Any, Any] | None = None) -> dict[Any, Any]:
    """Apply a changelog and return the rows by key; check that each change fits the rows before it."""
    state = dict(state or {})
    for kind, row in changes:
        key = (row["id"], row["region"])
        match kind:
            case "+I":
                assert key not in state
                state[key] = row
            case "-U":
                assert state[key] == row
            case "+U":
                assert key in state
                state[key] = row
            case "-D":
                assert state.pop(key) == row
    return state


def read_snapshots(storage: EmbeddedStorage) -> dict[Any, Any]:
    """Return the rows of a table's latest KV snapshots by key. No key may come twice."""
    table = storage.table(PATH)
    rows = [
        row
        for info in storage.buckets(PATH)
        if info.latest_kv_snapshot is not None
        for batch in storage.reader().read_kv_snapshot(table, info.latest_kv_snapshot, None, None)
        for row in batch.to_pylist()
    ]
    by_key = {(row["id"], row["region"]): row for row in rows}
    assert len(by_key) == len(rows)
    return by_key


def segments(folder: Path, bucket: int = 0) -> list[Path]:
    return sorted(folder.glob(f"tables/*/*/log-{bucket}/*.log"))


def collect(storage: EmbeddedStorage, protected: frozenset[tuple[TableBucket, int]] = frozenset()) -> int:
    """Delete old KV snapshots as the server does, except these; the number of them."""
    old = [each for table in storage.tables() for each in storage.collectable_kv_snapshots(table.path)]
    return storage.delete_kv_snapshots([each for each in old if each not in protected])
