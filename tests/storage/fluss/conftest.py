"""The storage of the shared cluster, and batches so small that a scan session has many."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fluss_scanning import make_batches_small, open_storage

from fluss_support import FlussCluster
from fluss_tiering.storage.fluss.storage import FlussStorage


@pytest.fixture(scope="module")
def storage(fluss_cluster: FlussCluster) -> Iterator[FlussStorage]:
    opened = open_storage(fluss_cluster)
    yield opened
    opened.close()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    make_batches_small(monkeypatch)
