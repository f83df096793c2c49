"""A cluster's remote folder in an object store: a copy of a real one behind a server that speaks S3."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fluss_reading import AlteringClient, bucket_of, ids_of, kv_table, moved_log, read, snapshot_of
from fluss_tables import COLUMNS, rows, upsert
from refusals import refused

from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.table import TableInfo
from fluss_tiering.storage.fluss.access import s3_from_environment
from fluss_tiering.storage.fluss.reading import remote_files
from fluss_tiering.storage.fluss.reading.kv_snapshot_reader import KvSnapshotReader
from fluss_tiering.storage.fluss.reading.reader import FlussSplitReader
from fluss_tiering.storage.fluss.reading.remote_files import RemoteFiles
from fluss_tiering.storage.fluss.rpc.calls.kv import KvSnapshotFiles
from fluss_tiering.storage.fluss.rpc.calls.log import FetchedLog, fetch_log
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from needs import needs
from s3_support import ACCESS_KEY, REGION, SECRET_KEY, S3Server
from waiting import wait_until

BUCKET = "fluss"


@pytest.fixture(scope="module")
@needs("system")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as running:
        yield running


def settings(s3: S3Server, secret_key: str = SECRET_KEY) -> dict[str, str]:
    """Make remote files as a process does whose environment says where the store is."""
    return s3_from_environment(
        {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": secret_key,
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL_S3": f"http://{s3.endpoint}",
        }
    )


def copied(s3: S3Server, cluster: Any, made: TableInfo) -> None:
    """The table's part of the remote folder, in the bucket under the same names.

    Snapshots that a newer one replaces may go away meanwhile; it is the newest that is read.
    """
    folders = list(cluster.remote_dir.glob(f"*/{made.path.database}/{made.path.table}-{made.table_id}"))
    assert folders

    def upload(folder: Path) -> bool:
        try:
            s3.upload(folder, BUCKET, str(folder.relative_to(cluster.remote_dir)))
        except FileNotFoundError:
            return False
        return True

    for folder in folders:
        wait_until(lambda folder=folder: upload(folder))


def remote_end(fluss: FlussClient, made: TableInfo) -> int:
    return fluss.call(fetch_log(made.path, bucket_of(made), 0)).remote_segments[-1].end_offset


def reader_of(fluss: FlussClient, cluster: Any, s3: dict[str, str]) -> FlussSplitReader:
    """A reader that gets the paths in the bucket instead of the paths in the cluster's folder."""

    def moved(path: str) -> str:
        assert str(cluster.remote_dir) in path
        return f"s3://{BUCKET}{path.partition(str(cluster.remote_dir))[2]}"

    def alter(answer: Any) -> Any:
        if isinstance(answer, KvSnapshotFiles):
            return replace(answer, files={name: moved(path) for name, path in answer.files.items()})
        if isinstance(answer, FetchedLog):
            segments = [replace(each, path=moved(each.path)) for each in answer.remote_segments]
            return replace(answer, remote_segments=segments)
        return answer

    return FlussSplitReader(AlteringClient(fluss, alter), RemoteFiles(s3), unavailable_timeout_s=1.0)


def test_a_log_is_read_from_the_store_and_on_from_the_leader(fluss: FlussClient, fluss_cluster, s3: S3Server) -> None:
    made = moved_log(fluss)
    # All segments but the newest one are there; a copy that was made too early would lack some.
    wait_until(lambda: remote_end(fluss, made) == 8_000)
    copied(s3, fluss_cluster, made)
    reader = reader_of(fluss, fluss_cluster, settings(s3))

    for start, end in ((0, 10_000), (1_999, 2_001)):
        assert ids_of(read(reader, made, start, end)) == list(range(start, end))


def test_a_kv_snapshot_is_read_from_the_store_whole_and_in_pieces(
    fluss: FlussClient, fluss_cluster, s3: S3Server
) -> None:
    made, _ = kv_table(fluss, 2_000)
    # Only the files of a key range are fetched.
    snapshot = snapshot_of(fluss, made, upsert(fluss, made, rows(2_000, 4_000)))
    copied(s3, fluss_cluster, made)
    reader = reader_of(fluss, fluss_cluster, settings(s3))

    assert reader.measure_kv_snapshot(made, snapshot).size_bytes > 0
    files = KvSnapshotReader(fluss, RemoteFiles(), made.path, snapshot)
    keys = sorted(key for entries in files.entries(None, None, 1 << 20) for key in entries.column("key").to_pylist())
    cuts = [None, keys[1_000], keys[3_000], None]
    pieces = [
        pa.Table.from_batches(reader.read_kv_snapshot(made, snapshot, *ends), schema=arrow_schema(COLUMNS))
        for ends in [(None, None), *itertools.pairwise(cuts)]
    ]
    whole, *parts = [sorted(piece.column("id").to_pylist()) for piece in pieces]
    assert whole == sorted(each for part in parts for each in part) == list(range(4_000))
    assert [len(part) for part in parts] == [1_000, 2_000, 1_000]


# S10
def test_a_store_that_refuses_lacks_a_file_or_is_away(
    fluss: FlussClient, fluss_cluster, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_files, "_S3_TRIES", 2)
    made, snapshot = kv_table(fluss, 10)
    name = f"KV snapshot {snapshot.snapshot_id} of {snapshot.bucket}"

    def opened(reader: FlussSplitReader) -> list[pa.RecordBatch]:
        return list(reader.read_kv_snapshot(made, snapshot, None, None))

    with refused(ErrorCode.CORRUPT_DATA, name, f"s3://{BUCKET}/", "is missing"):
        opened(reader_of(fluss, fluss_cluster, settings(s3)))
    with refused(ErrorCode.STORAGE, f"s3://{BUCKET}/", "ACCESS_DENIED"):
        opened(reader_of(fluss, fluss_cluster, settings(s3, "wrong")))
    copied(s3, fluss_cluster, made)
    assert len(opened(reader_of(fluss, fluss_cluster, settings(s3)))) == 1
    s3.stop()
    try:
        with refused(ErrorCode.STORAGE, f"s3://{BUCKET}/", "cannot be read here"):
            opened(reader_of(fluss, fluss_cluster, settings(s3)))
    finally:
        s3.start()


@pytest.mark.parametrize("name", ["a#1", "b?c=d", "%20", "e;f", "g\nh"])
def test_characters_of_urls_mean_nothing_in_the_path_of_a_file(tmp_path: Path, name: str) -> None:
    file = tmp_path / name / "1.log"
    file.parent.mkdir()
    file.write_bytes(b"12")
    files = RemoteFiles()
    assert files.local(f"file:{file}") == file
    assert files.size(f"file://{file}") == 2
    assert files.open(str(file)).read() == b"12"
