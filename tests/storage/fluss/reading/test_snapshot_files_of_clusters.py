"""The files of KV snapshots that a cluster names: their values, their indexes, and what is wrong with one of them."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fluss_reading import AlteringClient, kv_table, snapshot_of
from fluss_tables import COLUMNS, rows, upsert
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from rocksdict import AccessType, BlockBasedOptions, DBCompressionType, Options, Rdict
from tagged_values import tagged_files

from fluss_tiering.formats.compacted.row import decode_values
from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.table import KvSnapshot, TableBucket, TableInfo, TablePath
from fluss_tiering.storage.fluss.buckets import ClusterBuckets
from fluss_tiering.storage.fluss.reading.kv_snapshot_reader import KvSnapshotReader
from fluss_tiering.storage.fluss.reading.reader import FlussSplitReader
from fluss_tiering.storage.fluss.reading.remote_files import RemoteFiles
from fluss_tiering.storage.fluss.reading.split_keys import keys_within, split_keys
from fluss_tiering.storage.fluss.rpc.calls.kv import KvSnapshotFiles
from fluss_tiering.storage.fluss.rpc.client import FlussClient, ParallelCalls
from fluss_tiering.storage.fluss.scans import ClusterScans

COUNT = 1000
OPTION = "table.kv.value-layout-version"


def with_layout(table: TableInfo, version: str) -> TableInfo:
    properties = {**table.descriptor.properties, OPTION: version}
    return replace(table, descriptor=replace(table.descriptor, properties=properties))


def later_changes(fluss: FlussClient, table: TableInfo) -> None:
    upsert(fluss, table, rows(COUNT, COUNT + 5), deleted=[0])


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

    return with_layout(made, "2"), snapshot, AlteringClient(fluss, alter)


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
    table = with_layout(made, version)
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


class Client:
    """A cluster whose snapshot has a file of this name."""

    def __init__(self, name: str, path: Path) -> None:
        self._files = KvSnapshotFiles(0, {name: str(path)})

    def call(self, *_: Any, **__: Any) -> KvSnapshotFiles:
        return self._files


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "../a"])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x")
    client: Any = Client(name, file)
    reader = KvSnapshotReader(
        client, RemoteFiles(), TablePath("shop", "orders"), KvSnapshot(TableBucket(1, 0), 3, 4, 1, 1, "")
    )
    with refused(ErrorCode.CORRUPT_DATA, "no plain name"):
        list(reader.entries(None, None, 1 << 20))


def test_a_disk_that_takes_no_copy_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x")
    with refused(ErrorCode.STORAGE, "could not copy a remote file to /dev/full"):
        RemoteFiles().copy(str(file), Path("/dev/full"))
    with pytest.raises(FileNotFoundError):
        RemoteFiles().copy(str(tmp_path / "missing"), tmp_path / "copy")


KEYS = [f"key-{number:06d}".encode() for number in range(20_000)]
COMPRESSIONS = {
    "none": DBCompressionType.none(),
    "snappy": DBCompressionType.snappy(),
    "lz4": DBCompressionType.lz4(),
    "zstd": DBCompressionType.zstd(),
}


def table_file(folder: Path, compression: DBCompressionType, version: int) -> bytes:
    """Return the only table file of a database with these keys."""
    blocks = BlockBasedOptions()
    blocks.set_format_version(version)
    options = Options(raw_mode=True)
    options.set_block_based_table_factory(blocks)
    options.set_compression_type(compression)
    with Rdict(str(folder), options, access_type=AccessType.read_write()) as db:
        for key in KEYS:
            db[key] = key * 5
        db.flush()
    (file,) = folder.glob("*.sst")
    return file.read_bytes()


def keys_of(content: bytes, count: int) -> list[bytes]:
    return keys_within(pa.BufferReader(content), count)


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("version", [4, 5])
def test_keys_cut_a_file_into_parts_of_like_size(tmp_path: Path, compression: str, version: int) -> None:
    content = table_file(tmp_path / "db", COMPRESSIONS[compression], version)
    for count in (1, 7, 50):
        found = keys_of(content, count)
        assert len(found) == count
        bounds = [0, *(sum(key < cut for key in KEYS) for cut in found), len(KEYS)]
        sizes = [end - start for start, end in itertools.pairwise(bounds)]
        assert max(sizes) < 1.2 * len(KEYS) / (count + 1) + 200, sizes
        assert min(sizes) > 0.8 * len(KEYS) / (count + 1) - 200, sizes
    # There are no more keys than blocks, and each comes once.
    many = keys_of(content, 100_000)
    assert many == sorted(set(many))


def test_a_file_of_a_later_format_is_not_cut(tmp_path: Path) -> None:
    assert keys_of(table_file(tmp_path / "db", COMPRESSIONS["lz4"], 6), 7) == []


@pytest.fixture(scope="module")
def whole_file(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return table_file(tmp_path_factory.mktemp("index") / "db", COMPRESSIONS["lz4"], 5)


@given(st.data())
def test_a_damaged_file_has_fewer_keys_or_none(whole_file: bytes, data: st.DataObject) -> None:
    damaged = bytearray(whole_file)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[-data.draw(st.integers(1, 9_000))] = data.draw(st.integers(0, 255))
    keys = keys_of(bytes(damaged[: data.draw(st.sampled_from([len(damaged), 60, 53, 20, 0]))]), 7)
    assert len(keys) <= 7
    assert keys == sorted(set(keys))


def test_parts_are_put_together_to_pieces_of_like_size() -> None:
    first = [(bytes([number]), 1.0) for number in range(100)]
    assert split_keys(first, 4) == (bytes([24]), bytes([49]), bytes([74]))
    # One range is denser in the second file than in the first.
    second = [(bytes([90 + number // 10]), 1.0) for number in range(100)]
    assert split_keys([*first, *second], 2) == (bytes([90]),)
    assert split_keys([], 4) == ()
    assert split_keys([(b"a", 10.0)], 4) == (b"a",)
