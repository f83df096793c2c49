"""Rounds with credentials that a REST catalog vends for a limited time, before a store that takes no others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog as Judge
from s3_lake_support import BUCKET, run, started
from spark_support import Tiering, named

from engine_support import ServerProcess
from fetch_test_servers import REST_AWS, fetch_jar
from fluss_tiering.client import TieringClient
from fluss_tiering.model.table import TableInfo
from needs import needs
from rest_support import RestCatalog
from s3_support import REGION, S3Server
from vending_support import S3Gate, S3Request, Session, VendingCatalog

pytestmark = [pytest.mark.spark, pytest.mark.system, pytest.mark.long, pytest.mark.timeout(900)]

OF_SERVER = {"s3.access-key-id": "key-of-server", "s3.secret-access-key": "planted-secret-of-server"}
OF_SPARK = {"s3.access-key-id": "key-of-spark", "s3.secret-access-key": "planted-secret-of-spark"}


@dataclass
class Lake:
    """A REST catalog that vends sessions, and the store that takes them."""

    gate: S3Gate
    catalog: VendingCatalog
    judge: Judge
    server: ServerProcess
    folder: Path
    sessions: list[Session] = field(default_factory=list)

    def vend_anew(self, expires_ms: int | None = None) -> dict[str, Any]:
        """Vend a new session for each table that is loaded, for the longest prefix; all else vended is wrong."""
        session = Session(expires_ms=expires_ms)
        self.sessions.append(session)
        self.gate.sessions[session.key_id] = session
        wrong = {"s3.access-key-id": "wrong", "s3.secret-access-key": "wrong", "s3.session-token": "wrong"}
        return {
            "config": wrong,
            "storage-credentials": [
                {"prefix": "s3", "config": wrong},
                {"prefix": f"s3://{BUCKET}/lake/", "config": session.properties},
                {"prefix": f"s3://{BUCKET}/", "config": wrong},
            ],
        }

    def end_at_first_file(self, request: S3Request) -> None:
        """End all sessions when an executor has written its first file."""
        if request.client == "executor" and request.method == "PUT" and request.path.endswith(".parquet"):
            self.gate.after = lambda _: None
            for session in self.sessions:
                session.ended = True

    def secrets(self) -> list[str]:
        properties = [OF_SERVER, OF_SPARK, *(each.properties for each in self.sessions)]
        return [value for each in properties for key, value in each.items() if "secret" in key or "token" in key]

    def tier(self, spark_jars: str, *tables: TableInfo, ended_with: int = 0, conf: str = "") -> list[dict[str, Any]]:
        """Tier tables with one task at a time, and look for secrets in all that was written of it."""
        events = self.folder / f"events-{len(list(self.folder.glob('events-*')))}"
        events.mkdir()
        settings = " ".join(
            f"--conf {key}={value}"
            for key, value in {
                **{f"spark.sql.catalog.lake_on_s3.{key}": value for key, value in OF_SPARK.items()},
                "spark.eventLog.enabled": "true",
                "spark.eventLog.dir": f"file:{events}",
                "spark.eventLog.compress": "false",
            }.items()
        )
        names = [str(each.path) for each in tables]
        results = run(
            self.server,
            spark_jars,
            "tier",
            *names,
            "--master",
            "local[1]",
            settings=f"{settings} {conf}",
            secrets=self.secrets,
            ended_with=ended_with,
        )
        written = [each for each in (*events.rglob("*"), self.server.log_file) if each.is_file()]
        assert len(written) > 1, "Spark wrote an event log"
        for file in written:
            text = file.read_bytes().decode("latin-1")
            assert not [each for each in self.secrets() if each in text], file
        return results

    def rows(self, table: TableInfo) -> list[tuple[int, str]] | None:
        """Return the rows of a log table as PyIceberg reads them; None without a snapshot."""
        loaded = self.judge.load_table(f"{table.lake_path}")
        if loaded.current_snapshot() is None:
            return None
        rows: pa.Table = loaded.scan().to_arrow()
        return sorted(zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True))


@pytest.fixture(scope="module")
@needs("server")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    folder = tmp_path_factory.mktemp("vended")
    warehouse = f"s3://{BUCKET}/lake"
    jars = [fetch_jar(artifact) for artifact in REST_AWS]
    with pytest.MonkeyPatch.context() as patched, S3Server(folder / "s3", signed=False) as s3:
        patched.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
        (s3.objects / BUCKET).mkdir()
        own = {
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "s3.endpoint": f"http://{s3.endpoint}",
            "s3.path-style-access": "true",
            "s3.access-key-id": "key-of-catalog",
            "s3.secret-access-key": "planted-secret-of-catalog",
            "client.region": REGION,
        }
        with (
            RestCatalog(folder / "rest", warehouse=warehouse, properties=own, jars=jars) as rest,
            S3Gate(s3.endpoint) as gate,
            VendingCatalog(f"127.0.0.1:{rest.port}", dict) as catalog,
        ):
            properties = {
                "type": "rest",
                "uri": catalog.endpoint,
                "warehouse": warehouse,
                "header.X-Iceberg-Access-Delegation": "vended-credentials",
            }
            direct = {"s3.endpoint": f"http://{s3.endpoint}", "s3.region": REGION}
            judge = Judge("judge", uri=f"http://127.0.0.1:{rest.port}", **direct, **OF_SERVER)
            with started(folder / "server", lambda _: properties, gate.endpoint, OF_SERVER) as server:
                yield Lake(gate, catalog, judge, server, folder)


@pytest.fixture(autouse=True)
def cleared(lake: Lake) -> None:
    lake.catalog.vend = lake.vend_anew
    lake.gate.after = lambda _: None
    lake.gate.requests.clear()
    lake.sessions.clear()


@pytest.fixture
def tiering(lake: Lake) -> Iterator[Tiering]:
    with TieringClient(lake.server.target) as client:
        yield Tiering(client, None, lake.server.target)  # type: ignore[arg-type]


def test_every_request_to_the_store_has_the_vended_credentials_of_the_table(
    lake: Lake, tiering: Tiering, spark_jars: str
) -> None:
    log, keyed = tiering.table(primary_key=False, num_buckets=2), tiering.table()
    for table in (log, keyed):
        tiering.write(table, named(range(40), "row"))
    results = lake.tier(spark_jars, log, keyed)
    assert [(each["status"], each["rows"]) for each in results] == [("Tiered", 40)] * 2
    assert lake.rows(log) == sorted(named(range(40), "row").items())
    vended = {each.key_id for each in lake.sessions}
    assert lake.gate.keys_of("driver") <= vended
    assert lake.gate.keys_of("executor") <= vended
    assert lake.gate.keys_of("driver")
    assert lake.gate.keys_of("executor")
    assert not [each for each in lake.gate.requests if each.ended]


def test_what_is_left_when_a_session_ends_is_written_with_a_new_one(
    lake: Lake, tiering: Tiering, spark_jars: str
) -> None:
    table = tiering.table(primary_key=False, num_buckets=4)
    tiering.write(table, named(range(80), "row"))
    lake.gate.after = lake.end_at_first_file
    (result,) = lake.tier(spark_jars, table)
    assert (result["status"], result["rows"]) == ("Tiered", 80)
    assert lake.rows(table) == sorted(named(range(80), "row").items())
    refused = [each for each in lake.gate.requests if each.ended]
    assert any(each.client == "executor" for each in refused), "the session ended in the middle of the round"
    assert not [each for each in refused if each.client == "driver"], "the driver commits with a new one, too"
    (round_,) = tiering.rounds(table)
    assert not round_.error
