"""What OpenLineage learns of a round, by its own client and by the extractor of Airflow's provider for it."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
from openlineage.client.transport.file import FileConfig, FileTransport
from openlineage.client.uuid import generate_new_uuid

from airflow_provider_fluss.lease import LeaseHandle
from airflow_provider_fluss.lineage import fluss_dataset, lake_names, lineage_of_lease
from fluss_tiering.model.table import StorageDescription, TablePath

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
