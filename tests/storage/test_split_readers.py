import io
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from broken_columns import with_broken_last_column
from embedded_tables import (
    PATH,
    end_offsets,
    kv_keys,
    kv_rows,
    kv_table,
    log_rows,
    log_table,
    opened,
    read_log,
    segments,
)
from refusals import refused

from engine_support import ServerThread
from fluss_tiering.client import TieringClient
from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.table import StorageDescription, TableBucket, WriteKind
from fluss_tiering.storage.embedded.reader import EmbeddedSplitReader
from fluss_tiering.storage.embedded.storage import EmbeddedStorage
from fluss_tiering.storage.open import open_split_reader
from fluss_tiering.storage.remote import RemoteSplitReader


class Streams:
    """A client for the bytes of a storage. It cuts chunks anywhere, and may end early or damage them."""

    def __init__(
        self, storage: EmbeddedStorage, chunk: int, *, keep: int | None = None, flip: int | None = None
    ) -> None:
        self.storage, self.chunk, self.keep, self.flip = storage, chunk, keep, flip

    def fetch_log(self, bucket: TableBucket, start_offset: int, end_offset: int) -> Iterator[bytes]:
        data = bytearray(b"".join(self.storage.fetch_log(bucket, start_offset, end_offset))[: self.keep])
        if self.flip is not None:
            data[self.flip] ^= 1
        stream = io.BytesIO(data)
        yield from iter(lambda: stream.read(self.chunk), b"")


@pytest.mark.parametrize("chunk", [1, 100, 1 << 20])
def test_a_log_reads_the_same_through_the_server(tmp_path: Path, chunk: int) -> None:
    with opened(tmp_path) as storage:
        table = storage.create_table(PATH, kv_table())
        storage.write(PATH, WriteKind.UPSERT, kv_rows([{"id": key} for key in range(20)]))
        storage.write(PATH, WriteKind.DELETE, kv_keys(3, 5))
        storage.write(PATH, WriteKind.UPSERT, kv_rows([{"id": 7, "name": "x"}]))
        remote = RemoteSplitReader(Streams(storage, chunk))
        for start, end in ((0, 24), (4, 21), (19, 20), (20, 24), (7, 7)):
            direct = read_log(storage.reader(), table, 0, start, end)
            fetched = read_log(remote, table, 0, start, end)
            assert [(batch.base_offset, batch.commit_timestamp) for batch in fetched] == [
                (batch.base_offset, batch.commit_timestamp) for batch in direct
            ]
            for ours, theirs in zip(fetched, direct, strict=True):
                assert ours.records.equals(theirs.records)
                assert ours.change_types.tolist() == theirs.change_types.tolist()


@pytest.mark.parametrize("columns", [["name"], ["amount", "id"], ["amount", "name", "region", "id"], []])
def test_some_columns_are_read_alike_everywhere(tmp_path: Path, columns: list[str]) -> None:
    with opened(tmp_path) as storage:
        table = storage.create_table(PATH, kv_table())
        storage.write(PATH, WriteKind.UPSERT, kv_rows([{"id": key, "name": f"name {key}"} for key in range(20)]))
        storage.write(PATH, WriteKind.DELETE, kv_keys(3, 5))
        whole = read_log(storage.reader(), table, 0, 2, 22)
        for reader in (storage.reader(), RemoteSplitReader(Streams(storage, 1000))):
            found = read_log(reader, table, 0, 2, 22, columns)
            assert [(batch.base_offset, batch.change_types.tolist(), batch.records.num_rows) for batch in found] == [
                (batch.base_offset, batch.change_types.tolist(), batch.records.num_rows) for batch in whole
            ]
            for some, all_columns in zip(found, whole, strict=True):
                assert some.records.equals(all_columns.records.select(columns))
            with refused(ErrorCode.INVALID_REQUEST, "no column 'nmae'", str(PATH)):
                read_log(reader, table, 0, 2, 22, ["nmae"])


def test_only_the_columns_that_are_wanted_are_decoded(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        table = storage.create_table(PATH, log_table(properties={"table.log.arrow.compression.type": "ZSTD"}))
        storage.write(PATH, WriteKind.APPEND, log_rows(0, 100))
        (segment,) = segments(tmp_path)
        segment.write_bytes(with_broken_last_column(segment.read_bytes()))
        for reader in (storage.reader(), RemoteSplitReader(Streams(storage, 1000))):
            (batch,) = read_log(reader, table, 0, 0, 100, ["id"])
            assert batch.records.equals(log_rows(0, 100).select(["id"]).to_batches()[0])
            with refused(ErrorCode.CORRUPT_DATA, "no records of the table's schema"):
                read_log(reader, table, 0, 0, 100, ["name"])


def test_a_log_comes_in_chunks_of_bounded_size(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        table = storage.create_table(PATH, log_table(properties={"table.log.arrow.compression.type": "NONE"}))
        for start in range(0, 400_000, 100_000):
            storage.write(PATH, WriteKind.APPEND, log_rows(start, start + 100_000))
        chunks = list(storage.fetch_log(TableBucket(table.table_id, 0), 5, 400_000))
        assert [len(chunk) for chunk in chunks[:-1]] == [1 << 20] * (len(chunks) - 1)
        assert len(chunks) > 5
        with refused(ErrorCode.INVALID_REQUEST, "expected buckets 0 to 0"):
            list(storage.fetch_log(TableBucket(table.table_id, 1), 0, 1))
        with refused(ErrorCode.TABLE_NOT_EXIST):
            list(storage.fetch_log(TableBucket(99, 0), 0, 1))


def test_a_stream_that_is_damaged_or_ends_early_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        table = storage.create_table(PATH, log_table())
        storage.write(PATH, WriteKind.APPEND, log_rows(0, 10))
        storage.write(PATH, WriteKind.APPEND, log_rows(10, 20))
        size = len(b"".join(storage.fetch_log(TableBucket(table.table_id, 0), 0, 20)))
        first = len(b"".join(storage.fetch_log(TableBucket(table.table_id, 0), 0, 10)))
        for streams, message in (
            (Streams(storage, 100, keep=size - 1), "ended within a log batch"),
            (Streams(storage, 100, keep=first), "ended before offset 10, expected 20"),
            (Streams(storage, 100, flip=first + 60), "checksum"),
            (Streams(storage, 100, flip=12 + first), "cannot be read"),
        ):
            with refused(ErrorCode.CORRUPT_DATA, message, f"bucket 0 of table {table.table_id}"):
                read_log(RemoteSplitReader(streams), table, 0, 0, 20)


def test_a_folder_is_read_directly_only_where_it_is_the_servers_own(tmp_path: Path) -> None:
    with opened(tmp_path / "server") as storage:
        table = storage.create_table(PATH, log_table())
        storage.write(PATH, WriteKind.APPEND, log_rows(0, 5))
        description = storage.describe()
        reader = open_split_reader(description, "localhost:1")
        assert isinstance(reader, EmbeddedSplitReader)
        assert len(read_log(reader, table, 0, 0, end_offsets(storage)[0])[0].records) == 5
        for elsewhere in (str(tmp_path), str(tmp_path / "missing"), ""):
            moved = StorageDescription(description.kind, elsewhere, description.data_dir_id, description.server_version)
            assert isinstance(open_split_reader(moved, "localhost:1"), RemoteSplitReader)
    with opened(tmp_path / "other"):
        pass
    shutil.rmtree(tmp_path / "server")
    (tmp_path / "other").rename(tmp_path / "server")
    assert isinstance(open_split_reader(description, "localhost:1"), RemoteSplitReader)


@pytest.mark.slow
def test_a_server_streams_to_readers_elsewhere_what_its_files_hold(tmp_path: Path) -> None:
    with ServerThread(tmp_path / "data") as server, TieringClient(server.target) as client:
        table = client.create_table(PATH, kv_table(2))
        written = kv_rows([{"id": key, "name": "x" * 400} for key in range(20_000)])
        assert sum(client.write_rows(PATH, WriteKind.UPSERT, [written])) == 20_000
        assert sum(client.write_rows(PATH, WriteKind.DELETE, [kv_keys(*range(5_000))])) == 5_000
        snapshots = client.take_kv_snapshots([PATH])[table.table_id]
        description = client.describe_storage()
        direct = open_split_reader(description, server.target)
        elsewhere = replace(description, data_dir="/elsewhere")
        remote = open_split_reader(elsewhere, server.target)
        assert isinstance(direct, EmbeddedSplitReader)
        assert isinstance(remote, RemoteSplitReader)
        for info in client.list_buckets([PATH])[PATH]:
            span = (info.bucket.bucket, 7, info.log_end_offset - 3)
            ours, theirs = read_log(direct, table, *span), read_log(remote, table, *span)
            assert [batch.base_offset for batch in ours] == [batch.base_offset for batch in theirs]
            assert pa.Table.from_batches(batch.records for batch in ours).equals(
                pa.Table.from_batches(batch.records for batch in theirs)
            )
            with refused(ErrorCode.LOG_OFFSET_OUT_OF_RANGE):
                read_log(remote, table, info.bucket.bucket, 0, info.log_end_offset + 1)
        for snapshot in snapshots:
            rows = pa.Table.from_batches(remote.read_kv_snapshot(table, snapshot, None, None))
            assert rows.num_rows == snapshot.row_count
            assert rows.equals(pa.Table.from_batches(direct.read_kv_snapshot(table, snapshot, None, None)))
            with refused(ErrorCode.KV_SNAPSHOT_NOT_EXIST):
                list(remote.read_kv_snapshot(table, replace(snapshot, snapshot_id=99), None, None))
        client.drop_table(PATH, drop_untiered=True)
        with refused(ErrorCode.TABLE_NOT_EXIST):
            read_log(remote, table, 0, 0, 1)
