"""Tables of a cluster by their ids, and one that cannot be used, which keeps no other from being listed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from fluss_tables import descriptor
from refusals import refused

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, TableInfo, TablePath
from fluss_tiering.server.core.tiering.policy import LakeOptions
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey
from fluss_tiering.storage.fluss.rpc.client import ParallelCalls
from fluss_tiering.storage.fluss.rpc.errors import FlussError, FlussServerError
from fluss_tiering.storage.fluss.rpc.table_json import columns_from_json, table_from_json, table_to_json
from fluss_tiering.storage.fluss.table_cache import ClusterTableCache
from fluss_tiering.wire.tables import column_from_pb, column_to_pb

GOOD, BAD = TablePath("shop", "good"), TablePath("shop", "bad")


class Cluster:
    """A cluster with two tables. One of them has odd options, or is not described."""

    def __init__(self) -> None:
        self.properties: Mapping[str, str] = {}
        self.error: FlussTieringError | None = None

    def call(self, call: Any, **_: Any) -> Any:
        if call.api is ApiKey.LIST_DATABASES:
            return ["shop"]
        if call.api is ApiKey.LIST_TABLES:
            return [GOOD, BAD]
        if call.request.table_path.table_name == GOOD.table:
            return TableInfo(1, GOOD, 1, descriptor(), 0)
        if self.error is not None:
            raise self.error
        return TableInfo(2, BAD, 1, replace(descriptor(), properties=self.properties), 0)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def tables(cluster: Cluster) -> Iterator[ClusterTableCache]:
    calls, client = ParallelCalls(), cluster
    yield ClusterTableCache(client, calls, monotonic=lambda: 0.0)  # type: ignore[arg-type]
    calls.close()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("enabled", "yes"),
        ("auto-compaction", "on"),
        ("auto-expire-snapshot", "1"),
        ("tier-when-unchanged", ""),
        ("freshness", "soon"),
        ("max-round-duration", "5"),
    ],
)
def test_each_table_that_is_listed_can_be_registered(
    tables: ClusterTableCache, cluster: Cluster, option: str, value: str
) -> None:
    cluster.properties = {f"table.datalake.{option}": value}
    listed = tables.refresh()
    assert [table.path for table in listed] == [GOOD]
    assert option in tables.unusable()[BAD].message
    for table in listed:
        LakeOptions.of(table.descriptor.properties)


@pytest.mark.parametrize("error", [FlussError.SCHEMA_NOT_EXIST, FlussError.UNKNOWN_SERVER_ERROR])
def test_a_table_that_the_cluster_cannot_describe_holds_up_no_other(
    tables: ClusterTableCache, cluster: Cluster, error: FlussError
) -> None:
    cluster.error = FlussServerError(error, "the node of the table cannot be read")
    assert [table.path for table in tables.refresh()] == [GOOD]
    assert "cannot be read" in tables.unusable()[BAD].message
    with refused(ErrorCode.UNKNOWN if error is FlussError.UNKNOWN_SERVER_ERROR else ErrorCode.INVALID_REQUEST):
        tables.get(BAD)
    cluster.error = None
    assert tables.get(BAD).path == BAD, "a refresh that met a table half created hid it from who created it"
    assert [table.path for table in tables.refresh()] == [BAD, GOOD]


@pytest.mark.parametrize(
    "error",
    [
        FlussServerError(FlussError.REQUEST_TIME_OUT, "too slow"),
        FlussServerError(FlussError.UNKNOWN_SERVER_ERROR, "The coordinator is not initialized yet."),
        FlussServerError(FlussError.AUTHENTICATE_EXCEPTION, "who are you?"),
    ],
)
def test_a_cluster_that_cannot_be_asked_changes_nothing(
    tables: ClusterTableCache, cluster: Cluster, error: FlussServerError
) -> None:
    tables.refresh()
    cluster.error = error
    with pytest.raises(FlussServerError):
        tables.refresh()
    assert tables.unusable() == {}


@pytest.mark.parametrize("levels", [16, 17, 500])
def test_a_type_that_clients_cannot_be_told_of_is_refused(levels: int) -> None:
    data_type: dict[str, Any] = {"type": "INTEGER"}
    for _ in range(levels):
        data_type = {"type": "ARRAY", "element_type": data_type}
    table = json.loads(table_to_json(descriptor()))
    table["schema"]["columns"][0]["data_type"] = data_type

    def read() -> tuple[Column, ...]:
        text = json.dumps(table).encode()
        return table_from_json(text, path=BAD, table_id=2, schema_id=1, created_time=0).descriptor.columns

    if levels > 16:
        with refused(ErrorCode.INVALID_TABLE, "nested more than 16 deep"):
            read()
    else:
        assert [column_from_pb(column_to_pb(column)) for column in read()] == list(read())


def test_a_description_that_nests_too_deeply_to_be_read_is_an_error_of_its_table() -> None:
    text = b"[" * 100_000
    with refused(ErrorCode.CORRUPT_DATA, "RecursionError"):
        table_from_json(text, path=BAD, table_id=2, schema_id=1, created_time=0)
    with refused(ErrorCode.CORRUPT_DATA, "RecursionError"):
        columns_from_json(text, BAD)


class NumberedCluster:
    """A numbered_cluster with numbered_tables, which counts its calls. It is also the clock."""

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
        return TableInfo(self.ids[path.table], path, 1, descriptor(), 0)


@pytest.fixture
def numbered_cluster() -> NumberedCluster:
    return NumberedCluster()


@pytest.fixture
def numbered_tables(numbered_cluster: NumberedCluster) -> Iterator[ClusterTableCache]:
    calls, client = ParallelCalls(), numbered_cluster
    yield ClusterTableCache(client, calls, monotonic=lambda: numbered_cluster.now)  # type: ignore[arg-type]
    calls.close()


def test_a_table_is_found_by_its_id_without_sorting_all(
    numbered_tables: ClusterTableCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbered_tables.refresh()

    def no_order(*_: object) -> bool:
        raise AssertionError("paths were compared")

    monkeypatch.setattr(TablePath, "__lt__", no_order)
    assert numbered_tables.get_by_id(3).path == TablePath("shop", "t3")


def test_ids_of_no_table_cost_the_cluster_one_list_in_a_second(
    numbered_tables: ClusterTableCache, numbered_cluster: NumberedCluster
) -> None:
    for number in range(100, 150):
        with refused(ErrorCode.TABLE_NOT_EXIST, str(number)):
            numbered_tables.get_by_id(number)
    assert numbered_cluster.calls[ApiKey.LIST_DATABASES] == 1
    numbered_cluster.ids["t6"] = 6
    numbered_cluster.now += 1.1
    assert numbered_tables.get_by_id(6).path == TablePath("shop", "t6")
    assert numbered_cluster.calls[ApiKey.LIST_DATABASES] == 2
