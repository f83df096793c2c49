"""A cluster of Fluss 1.0 whose disk is fuller than its limit refuses writes, and says so."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fluss_tables import append, descriptor, new_table, rows
from refusals import refused

from fluss_support import FlussCluster
from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from needs import needs


@pytest.fixture
@needs("cluster")
def full(fluss_version: str, tmp_path: Path) -> Iterator[FlussCluster]:
    settings = {"server.data-disk.write-limit-ratio": "0.000001", "server.data-disk.write-recover-ratio": "0.0000001"}
    with FlussCluster(tmp_path / "full", version=fluss_version, tablet_servers=1, settings=settings) as started:
        yield started


@pytest.mark.long
@pytest.mark.fluss_versions("1.0")
def test_a_disk_that_is_too_full_is_named_at_once(full: FlussCluster) -> None:
    with FlussClient(full.bootstrap, timeout=60) as fluss:
        made = new_table(fluss, descriptor())
        began = time.monotonic()
        with refused(ErrorCode.LIMIT_EXCEEDED, "DISK_WRITE_LOCKED", "free space on the disk of that tablet server"):
            append(fluss, made, rows(0, 10), compression="NONE")
        # It is not tried until the client's time is up, since space does not come back by itself.
        assert time.monotonic() - began < 50
