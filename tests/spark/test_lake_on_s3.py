"""A lake in an object store: rounds, audits and maintenance, with the commands of a user."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from s3_lake_support import BUCKET, jdbc_catalog, run, started
from spark_support import Tiering, named

from engine_support import ServerProcess
from fetch_test_servers import REST_AWS, fetch_jar
from fluss_tiering.client import TieringClient
from needs import needs
from rest_support import RestCatalog
from s3_support import ACCESS_KEY, REGION, SECRET_KEY, S3Server

pytestmark = [pytest.mark.spark, pytest.mark.system, pytest.mark.long, pytest.mark.timeout(900)]

KEYS = {"s3.access-key-id": ACCESS_KEY, "s3.secret-access-key": SECRET_KEY}


@pytest.fixture(scope="module")
@needs("system")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as running:
        running.filesystem().create_dir(BUCKET)
        yield running


@pytest.fixture(scope="module")
@needs("server")
def server(tmp_path_factory: pytest.TempPathFactory, s3: S3Server) -> Iterator[ServerProcess]:
    with started(tmp_path_factory.mktemp("lake-on-s3"), jdbc_catalog, f"http://{s3.endpoint}", KEYS) as running:
        yield running


def test_rounds_audits_and_maintenance_of_a_lake_on_s3(server: ServerProcess, s3: S3Server, spark_jars: str):
    with TieringClient(server.target) as client:
        tiering = Tiering(client, None, server.target)
        log, keyed = tiering.table(primary_key=False), tiering.table()
        names = [str(log.path), str(keyed.path)]
        for number in range(2):
            for table in (log, keyed):
                tiering.write(table, named(range(10), f"round {number}"))
            assert {each["status"] for each in run(server, spark_jars, "tier", *names)} == {"Tiered"}

        (compacted,) = run(server, spark_jars, "compact", names[1], "--min-input-files", "2")
        assert (compacted["data_files_after"], compacted["delete_files_after"]) == (1, 0)
        (expired,) = run(server, spark_jars, "expire", names[1], "--older-than", "0s")
        assert expired["expired"] == 1
        for name in names:
            assert run(server, spark_jars, "verify", name)[0]["equal"]
        (cleaned,) = run(server, spark_jars, "clean", names[1])
        assert (cleaned["files"], cleaned["error"]) == ([], None)
    assert list(s3.objects.glob(f"{BUCKET}/lake-on-s30/db/*/data/**/*.parquet"))


def tiered_and_equal(server: ServerProcess, spark_jars: str, settings: str = "") -> None:
    """Tier a log table and a primary-key table, and compare the lake with the latter."""
    with TieringClient(server.target) as client:
        tiering = Tiering(client, None, server.target)
        tables = [tiering.table(primary_key=False), tiering.table()]
        for table in tables:
            tiering.write(table, named(range(10), "row"))
        results = run(server, spark_jars, "tier", *(str(table.path) for table in tables), settings=settings)
        assert [(each["status"], each["rows"]) for each in results] == [("Tiered", 10)] * 2
        assert run(server, spark_jars, "verify", str(tables[1].path), settings=settings)[0]["equal"]


# D47
def test_keys_that_only_the_spark_session_has(tmp_path: Path, s3: S3Server, spark_jars: str):
    settings = " ".join(f"--conf spark.sql.catalog.lake_on_s3.{key}={value}" for key, value in KEYS.items())
    with started(tmp_path, jdbc_catalog, f"http://{s3.endpoint}", {}) as server:
        tiered_and_equal(server, spark_jars, settings)


# D47
def test_keys_that_a_rest_catalog_vends(tmp_path: Path, s3: S3Server, spark_jars: str, monkeypatch: pytest.MonkeyPatch):
    own = {
        **KEYS,
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "s3.endpoint": f"http://{s3.endpoint}",
        "s3.path-style-access": "true",
        "client.region": REGION,
    }
    (tmp_path / "rest").mkdir()
    warehouse = f"s3://{BUCKET}/{tmp_path.name}"
    jars = [fetch_jar(artifact) for artifact in REST_AWS]
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    with (
        RestCatalog(tmp_path / "rest", warehouse=warehouse, properties=own, vends=True, jars=jars) as rest,
        started(tmp_path, lambda _: rest.properties, f"http://{s3.endpoint}", {}) as server,
    ):
        tiered_and_equal(server, spark_jars)
