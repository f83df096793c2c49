"""Whole rounds with other kinds of catalogs: Hadoop, and a REST catalog that may be down."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from spark_support import Tiering, lake_catalog, named

from engine_support import ServerProcess
from fluss_tiering.client import TieringClient
from fluss_tiering.lake.iceberg.catalog import IcebergCatalogs
from fluss_tiering.lake.iceberg.commit import IcebergCommitter
from fluss_tiering.lake.protocol import LakeCommit
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket, TableInfo
from fluss_tiering.model.tiering import TieringState
from fluss_tiering.spark.maintenance.compact import compact_table
from fluss_tiering.spark.maintenance.expire import expire_snapshots
from fluss_tiering.spark.retry import RetryingClient
from http_proxy import Proxy
from needs import needs
from rest_support import RestCatalog

_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
@needs("system")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalog]:
    with RestCatalog(tmp_path_factory.mktemp("rest-catalog")) as running:
        yield running


@pytest.fixture(scope="module", params=["hadoop", pytest.param("rest", marks=pytest.mark.system)])
@needs("server")
def lake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, spark) -> Iterator[Tiering]:
    """Yield a server whose whole lake is in such a catalog."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "rest":
        catalog = request.getfixturevalue("rest").properties
    else:
        catalog = {"type": "hadoop", "warehouse": f"file:{folder}/warehouse"}
    catalog["name"] = f"catalog_{request.param}"
    server = ServerProcess(folder, FLUSS_TIERING_LAKE_CATALOG=json.dumps(catalog)).start()
    with TieringClient(server.target) as client:
        yield Tiering(client, spark, server.target)
    assert server.stop() == 0


def catalog_options(properties: dict[str, str]) -> dict[str, str]:
    """Return table options for a catalog of the table's own."""
    own = {**properties, "name": f"catalog_{next(_NUMBERS)}"}
    return {f"table.datalake.iceberg.{key}": value for key, value in own.items()}


def commit_of(table: TableInfo, commit_id: str) -> LakeCommit:
    return LakeCommit(table.table_id, 1, commit_id, "/offsets", {TableBucket(table.table_id, 0): 1})


def failed(tiering: Tiering, table: TableInfo) -> str:
    """Run a round that fails, and return the error in the table's status."""
    tiering.tier_all(table)
    (status,) = tiering.client.list_tiering_statuses(table.path)
    newest, *_ = tiering.rounds(table)
    assert (newest.state, newest.error) == (TieringState.FAILED, status.last_error)
    return status.last_error


@pytest.mark.long
def test_rounds_recovery_and_maintenance(lake: Tiering, monkeypatch):
    log, keyed = lake.table(primary_key=False, num_buckets=2), lake.table(num_buckets=2)
    for table in (log, keyed):
        lake.write(table, named(range(20), "first"))
    lake.client.take_kv_snapshots([keyed.path])
    assert [result.error for result in lake.tier_all(log, keyed)] == [None, None]
    for table in (log, keyed):
        lake.write(table, named(range(10, 30), "second"))
    lake.delete(keyed, [0, 29])
    with monkeypatch.context() as patched:

        def die(*args, **kwargs):
            raise FlussTieringError(ErrorCode.UNAVAILABLE, "died between the two commits")

        patched.setattr(RetryingClient, "commit_lake_snapshot", die)
        assert all(result.failed for result in lake.tier_all(log, keyed))

    assert [result.stats.rows for result in lake.tier_all(log, keyed)] == [0, 0]

    assert [lake.equal(log), lake.equal(keyed)] == [True, True]
    compacted = compact_table(lake.spark, keyed, min_input_files=2)
    assert (compacted.error, compacted.after.delete_files) == (None, 0)
    expired = expire_snapshots(lake.client, lake.spark, keyed, older_than=timedelta())
    assert expired.error is None
    assert expired.expired > 0
    lake.round(keyed, named(range(5), "third"))
    assert lake.equal(keyed)


# S5, S22, L18, Fluss #2648
@pytest.mark.parametrize("has_base", [False, True])
@pytest.mark.sampled(2)
def test_of_two_drivers_one_lands(lake: Tiering, monkeypatch, has_base):
    table = lake.table(primary_key=False)
    catalogs = IcebergCatalogs(lake.spark)
    if has_base:
        catalogs.open_table(table).commit([], commit_of(table, "base"))
    stale, successor = catalogs.open_table(table), catalogs.open_table(table)
    stage = IcebergCommitter._stage

    def overtaken(*args):
        transaction = stage(*args)
        monkeypatch.undo()
        successor.commit([], commit_of(table, "successor"))
        return transaction

    monkeypatch.setattr(IcebergCommitter, "_stage", overtaken)
    with pytest.raises(FlussTieringError) as refused:
        stale.commit([], commit_of(table, "stale"))

    assert refused.value.code is ErrorCode.LAKE_CONFLICT
    ids = [row.summary["fluss-tiering.commit-id"] for row in lake.snapshots(table)]
    assert ids == (["base"] if has_base else []) + ["successor"]


# S10
def test_a_catalog_that_is_down_before_the_round_and_at_its_commit(tiering: Tiering, rest: RestCatalog, monkeypatch):
    table = tiering.table(properties=catalog_options(rest.properties))
    rows = named(range(10), "row")
    tiering.write(table, rows)
    rest.stop()
    try:
        assert failed(tiering, table).startswith("the lake cannot be reached: ")
    finally:
        rest.start()
    stage = IcebergCommitter._stage

    def stage_and_stop(*args):
        transaction = stage(*args)
        rest.stop()
        return transaction

    with monkeypatch.context() as patched:
        patched.setattr(IcebergCommitter, "_stage", stage_and_stop)
        try:
            assert failed(tiering, table).startswith("the lake cannot be reached: ")
        finally:
            rest.start()
    # Whether it landed was not known then.
    assert len(tiering.files_on_disk(table)) == 1

    tiering.tier(table)

    assert tiering.lake_rows(table) == sorted(rows.items())
    assert tiering.equal(table)


# S10
def test_a_warehouse_that_cannot_be_written_to(tiering: Tiering, tmp_path: Path):
    (tmp_path / "file").touch()
    catalog = {"type": "hadoop", "warehouse": f"file:{tmp_path}/file/warehouse"}
    table = tiering.table(properties=catalog_options(catalog))
    tiering.write(table, named(range(10), "row"))

    error = failed(tiering, table)

    assert f"could not open the lake table {table.path}" in error
    assert f"{tmp_path}/file" in error
    assert "\n" not in error


class OlderCatalog(Proxy):
    """A REST catalog that does not know format version 3."""

    def handle(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Any:
        if method == "POST" and path.endswith("/tables") and b'"format-version":"3"' in body:
            error = {"message": "Unsupported format version: v3", "type": "BadRequestException", "code": 400}
            return 400, {"Content-Type": "application/json"}, json.dumps({"error": error}).encode()
        return super().handle(method, path, headers, body)


def test_a_catalog_that_does_not_know_the_format_version(tiering: Tiering, rest: RestCatalog):
    with OlderCatalog(f"127.0.0.1:{rest.port}") as catalog:
        options = catalog_options({**rest.properties, "uri": catalog.endpoint})
        table = tiering.table(properties={**options, "iceberg.format-version": "3"})
        other = tiering.table(properties=options)
        for each in (table, other):
            tiering.write(each, named(range(10), "row"))

        error = failed(tiering, table)

        assert f"the lake catalog does not create {table.path} with format version 3" in error
        assert "option iceberg.format-version" in error
        assert "Unsupported format version: v3" in error
        assert error.endswith("or create the table again without the option")
        tiering.tier(other)
        assert tiering.equal(other)


@pytest.fixture
@needs("server", "system")
def unnamed(tmp_path: Path, spark) -> Iterator[Tiering]:
    """Yield a server whose JDBC catalog has no name, and a session of its own that opens it."""
    catalog = {key: value for key, value in lake_catalog(tmp_path / "lake").items() if key != "name"}
    server = ServerProcess(tmp_path, FLUSS_TIERING_LAKE_CATALOG=json.dumps(catalog)).start()
    with TieringClient(server.target) as client:
        yield Tiering(client, spark.newSession(), server.target)
    assert server.stop() == 0


# D53
def test_a_catalog_without_a_name_has_the_one_that_fluss_gives_it(unnamed: Tiering):
    unnamed.spark.conf.set("spark.sql.catalog.fluss_catalog", "fluss.tiering.spark.FlussCatalog")
    table = unnamed.table()
    for _ in range(2):
        unnamed.write(table, named(range(10), "row"))
        unnamed.tier(table)

    lake = unnamed.spark.sql(f"SELECT id, name FROM `fluss-iceberg-catalog`.{table.path}").collect()

    assert sorted((row.id, row.name) for row in lake) == sorted(named(range(10), "row").items())
    assert unnamed.equal(table)
    compacted = compact_table(unnamed.spark, table, min_input_files=2)
    assert (compacted.error, compacted.after.delete_files) == (None, 0)


def test_what_the_server_hides_is_told_or_taken_from_spark(tiering: Tiering):
    table, spark = tiering.table(), tiering.spark.newSession()
    tiering.tier(table)
    properties = table.lake_catalog_properties
    hidden = {**properties, "uri": f"{properties['uri'].partition('?')[0]}?***"}
    of_reader = replace(table, lake_catalog_properties=hidden)
    setting = f"spark.sql.catalog.{properties['name']}.uri"
    with pytest.raises(FlussTieringError) as refused:
        IcebergCatalogs(spark).find_table(of_reader)
    assert refused.value.code is ErrorCode.AUTHORIZATION
    assert f"the role tierer for the table, or give Spark the setting {setting}" in refused.value.message
    spark.conf.set(setting, properties["uri"])
    assert IcebergCatalogs(spark).find_table(of_reader) is not None
