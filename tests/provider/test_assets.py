"""Lake tables as assets, and in the lineage of runs."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from airflow.sdk import Asset, AssetAlias
from airflow.sdk.execution_time.context import OutletEventAccessor, OutletEventAccessors
from airflow_names import ProvidersManagerTaskRuntime
from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
from openlineage.client.transport.file import FileConfig, FileTransport
from openlineage.client.uuid import generate_new_uuid

from airflow_provider_fluss.assets.events import record_lake_assets
from airflow_provider_fluss.assets.table import convert_asset_to_openlineage, create_asset
from airflow_provider_fluss.lease import LeaseHandle
from airflow_provider_fluss.lineage import fluss_dataset, lake_names, lineage_of_lease
from fluss_tiering.client import DEFAULT_PORT
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import StorageDescription, TablePath

SERVER = f"tiering.example:{DEFAULT_PORT}"
URI = f"fluss://{SERVER}/shop/orders"


@pytest.mark.parametrize(
    "uri",
    [
        URI,
        "fluss://tiering.example/shop/orders",
        "fluss://Tiering.Example/shop/orders/",
        "FLUSS://tiering.example:9133/shop/orders#part",
    ],
)
def test_airflow_makes_one_asset_of_all_ways_to_write_its_uri(uri):
    assert Asset(uri=uri).uri == URI


@pytest.mark.parametrize(
    "uri", ["fluss:///shop/orders", "fluss://h/orders", "fluss://h/a/b/c", "fluss://h/a//b", "fluss://h/a/b?c=d"]
)
def test_a_uri_that_names_no_lake_table_is_refused(uri):
    with pytest.raises(ValueError, match="expected fluss://HOST:PORT/DATABASE/TABLE"):
        Asset(uri=uri)


@pytest.mark.parametrize("server", ["tiering.example", SERVER, f"an-id@{SERVER}"])
def test_an_asset_is_made_of_the_name_of_a_table_and_the_address_of_a_server(server):
    assert create_asset("shop.orders", server=server) == Asset(uri=URI)
    assert create_asset("shop.orders", server=server, extra={"team": "data"}).extra == {"team": "data"}
    assert create_asset("shop.orders", server="[::1]:9").uri == "fluss://[::1]:9/shop/orders"
    with pytest.raises(FlussTieringError, match="orders"):
        create_asset("orders", server=server)


@pytest.mark.parametrize(
    ("server", "netloc"),
    [
        (f"dns:{SERVER}", SERVER),
        (f"dns:///{SERVER}", SERVER),
        (f"an-id@dns://192.0.2.1/{SERVER}", SERVER),
        ("ipv4:192.0.2.7:9133,192.0.2.8:9133", "192.0.2.7:9133"),
        ("ipv6:[::1]:9", "[::1]:9"),
        ("dns:9134", "dns:9134"),  # a host of this name
    ],
)
def test_the_asset_of_a_table_is_named_without_the_resolver_of_its_server(server, netloc):
    assert create_asset("shop.orders", server=server).uri == f"fluss://{netloc}/shop/orders"


def test_airflow_knows_the_factory_and_the_converter():
    manager = ProvidersManagerTaskRuntime()
    assert manager.asset_factories["fluss"] is create_asset
    assert manager.asset_to_openlineage_converters["fluss"] is convert_asset_to_openlineage
    dataset = convert_asset_to_openlineage(Asset(uri=URI), None)
    assert (dataset.namespace, dataset.name) == (f"fluss://{SERVER}", "shop.orders")


def tiered(table: str, snapshot: int | None = 42, status: str = "Tiered") -> dict:
    return {
        "table": table,
        "tiering_epoch": 3,
        "status": status,
        "error": None,
        "rows": 5,
        "bytes": 500,
        "files": 1,
        "lake_snapshot_id": snapshot,
        "partitions": ["2026-11-28", "2026-11-29"],
    }


def recorded(outlets: list, *rounds: dict) -> tuple[dict, dict]:
    """The extra of each asset that is an outlet, and the extra of each asset of an alias."""
    context = {"outlets": outlets, "outlet_events": OutletEventAccessors()}
    record_lake_assets(context, rounds, SERVER)
    of_assets = {
        key.uri: context["outlet_events"][key].extra for key in context["outlet_events"] if hasattr(key, "uri")
    }
    events = [
        event
        for key in context["outlet_events"]
        if isinstance(key, AssetAlias)
        for event in context["outlet_events"][key].asset_alias_events
    ]
    return of_assets, {each.dest_asset_key.uri: each.extra for each in events}


def test_an_alias_gets_an_event_for_each_table_that_has_new_rows():
    _, events = recorded(
        [AssetAlias("lake")], tiered("shop.orders"), tiered("shop.empty", None), tiered("shop.bad", status="Failed")
    )
    row = tiered("shop.orders")
    assert events == {URI: {key: value for key, value in row.items() if key not in ("status", "error")}}


def test_an_asset_that_is_an_outlet_gets_the_details_of_its_round():
    orders, other = create_asset("shop.orders", server="tiering.example"), create_asset("shop.other", server=SERVER)
    for wanted in (False, hasattr(OutletEventAccessor, "add_partitions")):
        context = {"outlets": [orders, other], "outlet_events": OutletEventAccessors()}
        record_lake_assets(context, [tiered("shop.orders"), tiered("shop.third")], SERVER, partition_keys=wanted)
        event = context["outlet_events"][orders]
        assert event.extra["rows"] == 5
        assert sorted(getattr(event, "partition_keys", ())) == (["2026-11-28", "2026-11-29"] if wanted else [])
        assert context["outlet_events"][other].extra == {}


def test_an_outlet_that_names_another_server_is_warned_of(caplog):
    other = create_asset("shop.orders", server="elsewhere:9133")
    of_assets, _ = recorded([other, Asset("s3://lake/shop/orders")], tiered("shop.orders"), tiered("shop.third"))
    assert not of_assets.get(other.uri)
    (warning,) = [each.getMessage() for each in caplog.records]
    assert f"{other.uri} names the server elsewhere:9133" in warning
    assert f"create_asset(..., server='{SERVER}')" in warning
    caplog.clear()
    recorded([create_asset("shop.orders", server=SERVER)], tiered("shop.orders"))
    assert not caplog.records


def test_without_an_outlet_nothing_is_recorded():
    assert recorded([], tiered("shop.orders")) == ({}, {})
    record_lake_assets({}, [tiered("shop.orders")], SERVER)


EMBEDDED = {"type": "jdbc", "uri": "jdbc:sqlite:/data/lake/catalog.db?busy_timeout=1", "warehouse": "file:/data/lake"}


def emitted(lineage, path) -> dict:
    """The event as it reaches a backend of OpenLineage."""
    client = OpenLineageClient(transport=FileTransport(FileConfig(log_file_path=str(path), append=True)))
    client.emit(
        RunEvent(
            eventType=RunState.COMPLETE,
            eventTime=datetime.now(UTC).isoformat(),
            run=Run(runId=str(generate_new_uuid())),
            job=Job(namespace="test", name="dag.wait"),
            inputs=lineage.inputs,
            outputs=lineage.outputs,
        )
    )
    return json.loads(path.read_text().splitlines()[-1])


def test_a_round_reads_a_fluss_table_and_writes_its_lake_table(server, client, new_table, acquire, driver, tmp_path):
    tiered, failed, log = new_table(), new_table(), new_table(primary_key=False)
    lease = acquire(tiered, failed, log)
    driver.tier(lease, tiered)
    driver.fail_round(lease, failed, "broken")
    driver.tier(lease, log)
    event = emitted(lineage_of_lease(LeaseHandle.from_xcom(lease)), tmp_path / "events")
    namespace = f"fluss://127.0.0.1:{server.port}"
    assert [(each["namespace"], each["name"]) for each in event["inputs"]] == [(namespace, tiered), (namespace, log)]
    source, output = event["inputs"][0], event["outputs"][0]
    schema = [("id", "BIGINT NOT NULL"), ("name", "STRING")]
    for each in (source, output):
        assert [(field["name"], field["type"]) for field in each["facets"]["schema"]["fields"]] == schema
    (info,) = client.get_tables([TablePath.parse(tiered)])
    warehouse = info.lake_catalog_properties["warehouse"].removeprefix("file:")
    assert (output["namespace"], output["name"]) == ("file", f"{warehouse}/{tiered.replace('.', '/')}")
    (symlink,) = output["facets"]["symlinks"]["identifiers"]
    assert symlink["name"] == tiered
    assert symlink["namespace"] == info.lake_catalog_properties["uri"].partition("?")[0]
    assert output["facets"]["version"]["datasetVersion"] == "42"
    columns = output["facets"]["columnLineage"]["fields"]
    assert {
        name: [(each["namespace"], each["name"], each["field"]) for each in value["inputFields"]]
        for name, value in columns.items()
    } == {name: [(namespace, tiered, name)] for name, _ in schema}
    statistics = output["outputFacets"]["outputStatistics"]
    assert (statistics["rowCount"], statistics["size"], statistics["fileCount"]) == (3, 300, 1)


@pytest.mark.parametrize(
    ("catalog", "expected"),
    [
        (EMBEDDED, ("file", "/data/lake/shop/orders", "jdbc:sqlite:/data/lake/catalog.db")),
        (
            {"type": "hadoop", "warehouse": "s3a://bucket/lake/"},
            ("s3://bucket", "lake/shop/orders", "s3a://bucket/lake/"),
        ),
        (
            {"type": "hadoop", "warehouse": "hdfs://nn:8020/lake"},
            ("hdfs://nn:8020", "/lake/shop/orders", "hdfs://nn:8020/lake"),
        ),
        (
            {"type": "hadoop", "warehouse": "s3://key:hunter2@bucket/lake"},  # E24
            ("s3://bucket", "lake/shop/orders", "s3://bucket/lake"),
        ),
        (
            {"type": "hadoop", "warehouse": "abfss://box@shop.dfs.core.windows.net/lake"},
            (
                "abfss://box@shop.dfs.core.windows.net",
                "/lake/shop/orders",
                "abfss://box@shop.dfs.core.windows.net/lake",
            ),
        ),
        ({"type": "hive", "uri": "thrift://ms1:9083,thrift://ms2:9083"}, ("hive://ms1:9083", "shop.orders", None)),
        (
            {"type": "rest", "uri": "https://me:hunter2@lake.example/api?token=x", "warehouse": "w"},
            ("https://lake.example/api", "shop.orders", None),
        ),
        (
            {"type": "jdbc", "uri": "jdbc:postgresql://me:hunter2@db:5432/lake?password=x", "warehouse": "gs://b/w"},
            ("gs://b", "w/shop/orders", "jdbc:postgresql://db:5432/lake"),
        ),
    ],
)
def test_a_lake_table_is_named_by_its_catalog_and_no_secret_is_told(catalog, expected):
    assert lake_names(catalog, "shop.orders") == expected


def test_a_table_of_a_cluster_is_named_by_its_bootstrap_server(client, new_table):
    (info,) = client.get_tables([TablePath.parse(new_table())])
    cluster = StorageDescription("fluss", "", "an id", "1.0", "fluss1:9123,fluss2:9123")
    assert fluss_dataset(info, cluster, "tiering:9133").namespace == "fluss://fluss1:9123"
