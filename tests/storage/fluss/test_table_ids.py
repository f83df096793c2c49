"""Tables of a cluster by their ids, which most calls about rows and rounds name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from fluss_tables import descriptor
from refusals import refused

from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.table import TableInfo, TablePath
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey
from fluss_tiering.storage.fluss.rpc.client import ParallelCalls
from fluss_tiering.storage.fluss.table_cache import ClusterTableCache


class Cluster:
    """A cluster with tables, which counts its calls. It is also the clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: Counter[ApiKey] = Counter()
        self.ids = {f"t{number}": number for number in range(1, 6)}

    def call(self, call: Any, **_: Any) -> Any:
        self.calls[call.api] += 1
        if call.api is ApiKey.LIST_DATABASES:
            return ["shop"]
        if call.api is ApiKey.LIST_TABLES:
            return [TablePath("shop", name) for name in self.ids]
        path = TablePath(call.request.table_path.database_name, call.request.table_path.table_name)
        return SimpleNamespace(info=TableInfo(self.ids[path.table], path, 1, descriptor(), 0))


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def tables(cluster: Cluster) -> Iterator[ClusterTableCache]:
    calls, client = ParallelCalls(), cluster
    yield ClusterTableCache(client, calls, monotonic=lambda: cluster.now)  # type: ignore[arg-type]
    calls.close()


def test_a_table_is_found_by_its_id_without_sorting_all(
    tables: ClusterTableCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.refresh()

    def no_order(*_: object) -> bool:
        raise AssertionError("paths were compared")

    monkeypatch.setattr(TablePath, "__lt__", no_order)
    assert tables.get_by_id(3).path == TablePath("shop", "t3")


def test_ids_of_no_table_cost_the_cluster_one_list_in_a_second(tables: ClusterTableCache, cluster: Cluster) -> None:
    for number in range(100, 150):
        with refused(ErrorCode.TABLE_NOT_EXIST, str(number)):
            tables.get_by_id(number)
    assert cluster.calls[ApiKey.LIST_DATABASES] == 1
    cluster.ids["t6"] = 6
    cluster.now += 1.1
    assert tables.get_by_id(6).path == TablePath("shop", "t6")
    assert cluster.calls[ApiKey.LIST_DATABASES] == 2
