"""A task of Spark whose scan session is lost in the middle: Spark starts it again, and each row comes once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from source_support import columns, create, load
from spark_support import Tiering, served

from fluss_support import FlussCluster
from fluss_tiering.client import TieringClient
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket, TableInfo, WriteKind
from fluss_tiering.storage.fluss.rpc.calls.kv import close_session, open_session
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from needs import needs
from waiting import WAIT_S, wait_until

COLUMNS = columns(id="BIGINT NOT NULL", name="STRING")
ROWS = 60_000
LONG = "x" * 1_000
"""So that the rows are more than what the pipes between the cluster and the query hold."""


@pytest.fixture(scope="module")
@needs("cluster", "server")
def cluster(fluss_version: str, spark, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiering]:
    settings = {
        "kv.scanner.max-batch-size": "256kb",
        "kv.scanner.max-per-bucket": "1",
        "kv.scanner.ttl": "6s",
        "kv.scanner.expiration-interval": "100ms",
    }
    folder = tmp_path_factory.mktemp("retries")
    with (
        FlussCluster(folder / "cluster", version=fluss_version, tablet_servers=1, settings=settings) as started,
        served(started.bootstrap, folder / "server", spark) as tiering,
    ):
        yield tiering


def has_room(fluss: FlussClient, table: TableInfo, bucket: TableBucket) -> bool:
    """Return whether the bucket has no session. It has room for one."""
    try:
        opened = fluss.call(open_session(table.path, bucket, 1))
    except FlussTieringError as error:
        if error.code is not ErrorCode.TOO_MANY_SCANNERS:
            raise
        return False
    fluss.call(close_session(table.path, bucket, opened.scanner_id))
    return True


@pytest.mark.slow
@pytest.mark.fluss_versions("1.0")
@pytest.mark.long
def test_a_task_that_lost_its_session_is_started_again(cluster: Tiering, tmp_path: Path) -> None:  # K10, K15
    table = create(cluster, COLUMNS, key="id")
    bucket = TableBucket(table.table_id, 0)
    write(cluster.client, table)
    goes_on = tmp_path / "goes-on"

    def ids(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read the first batch, and the others only when the session has expired meanwhile."""
        import time  # noqa: PLC0415 - Spark runs this in another process
        import uuid  # noqa: PLC0415

        for number, batch in enumerate(batches):
            if number == 0:
                (tmp_path / f"attempt-{uuid.uuid4()}").touch()
                deadline = time.monotonic() + WAIT_S
                while not goes_on.exists() and time.monotonic() < deadline:
                    time.sleep(0.02)
            yield batch.select(["id"])

    frame = load(cluster, table).mapInArrow(ids, "id BIGINT")
    bootstrap = cluster.client.describe_storage().bootstrap_servers
    with FlussClient(bootstrap) as fluss, ThreadPoolExecutor(1) as pool:
        query = pool.submit(frame.collect)
        wait_until(lambda: query.done() or list(tmp_path.glob("attempt-*")))
        wait_until(lambda: query.done() or has_room(fluss, table, bucket))
        goes_on.touch()
        found = [row.id for row in query.result(WAIT_S)]
    assert sorted(found) == list(range(ROWS))
    assert len(list(tmp_path.glob("attempt-*"))) == 2


def write(client: TieringClient, table: TableInfo) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
    for first in range(0, ROWS, 10_000):
        ids = list(range(first, first + 10_000))
        rows = pa.table({"id": ids, "name": [LONG] * len(ids)}, schema=schema)
        list(client.write_rows(table.path, WriteKind.UPSERT, [rows]))
