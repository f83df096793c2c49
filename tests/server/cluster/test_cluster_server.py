"""A server in front of a real Fluss cluster: its start, its tables, and what others do to them."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from refusals import refused
from typer.testing import CliRunner

from engine_support import HOUR, SCHEMA, ServerProcess, ServerThread, descriptor
from examples.ports import free_ports
from fluss_support import USER, FlussCluster
from fluss_tiering.api.fluss.v1.connection_pb2 import ApiVersionsResponse
from fluss_tiering.cli.main import app
from fluss_tiering.client import TieringClient
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.column_changes import DropColumn
from fluss_tiering.model.errors import SERVER_AWAY, ErrorCode, FlussTieringError
from fluss_tiering.model.table import Column, DataType, TableBucket, TableDescriptor, TablePath, WriteKind
from fluss_tiering.model.tiering import TieringStatus
from fluss_tiering.server.app import choose_backend
from fluss_tiering.server.core.lake.catalog import LakeCatalogProperties
from fluss_tiering.server.settings.server_settings import load_settings
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey, ServedApis
from fluss_tiering.storage.fluss.rpc.calls.tables import alter_table, create_table, drop_table
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from needs import needs
from other_server import OtherServer
from tcp_proxy import TcpProxy
from waiting import WAIT_S, wait_until

FRESHNESS = "table.datalake.freshness"
_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
@needs("server")
def server(fluss_cluster: FlussCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Serves the shared cluster through its listener that demands credentials."""
    running = ServerProcess(
        tmp_path_factory.mktemp("cluster-server"),
        FLUSS_TIERING_FLUSS=fluss_cluster.sasl_bootstrap,
        FLUSS_TIERING_FLUSS_USERNAME=USER.username,
        FLUSS_TIERING_FLUSS_PASSWORD=USER.password,
    ).start()
    yield running
    assert running.stop() == 0
    log = running.log_file.read_text()
    assert "Traceback" not in log
    assert USER.password not in log


@pytest.fixture
def client(server: ServerProcess) -> Iterator[TieringClient]:
    with TieringClient(server.target, timeout=120) as connected:
        yield connected


def new_path() -> TablePath:
    return TablePath("served", f"t_{next(_NUMBERS)}")


def status_of(client: TieringClient, path: TablePath) -> TieringStatus | None:
    return next((each for each in client.list_tiering_statuses() if each.path == path), None)


def test_tables_and_rows_of_a_cluster(client: TieringClient, fluss_cluster: FlussCluster) -> None:
    described = client.describe_storage()
    assert (described.kind, described.bootstrap_servers) == ("fluss", fluss_cluster.sasl_bootstrap)
    path = new_path()
    made = client.create_table(path, descriptor(num_buckets=2))
    assert client.create_table(path, descriptor(), ignore_if_exists=True) == made
    assert made.lake_catalog_properties == fluss_cluster.lake_catalog
    assert made in client.list_tables()
    rows = pa.table({"id": list(range(1_000)), "name": ["x"] * 1_000}, schema=SCHEMA)
    assert list(client.write_rows(path, WriteKind.UPSERT, [rows])) == [1_000]
    assert sum(info.log_end_offset for info in client.list_buckets([path])[path]) == 1_000
    assert client.alter_table(path, {FRESHNESS: "9min"}, []).descriptor.properties[FRESHNESS] == "9min"
    with pytest.raises(FlussTieringError, match="expected ALTER TABLE by a client of the Fluss cluster"):
        client.alter_table(path, column_changes=[DropColumn("name")])
    assert status_of(client, path) is not None
    client.drop_table(path, drop_untiered=True)
    assert status_of(client, path) is None
    with refused(ErrorCode.TABLE_NOT_EXIST):
        client.get_tables([path])


@pytest.mark.system
def test_a_primary_key_table_of_a_cluster_is_scanned(server: ServerProcess, client: TieringClient) -> None:  # K5
    columns = (*descriptor().columns, Column("day", DataType.parse("STRING NOT NULL")))
    made_from = TableDescriptor(columns, primary_key=("id", "day"), partition_keys=("day",), num_buckets=2)
    path = new_path()
    client.create_table(path, made_from)
    rows = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"], "day": ["x", "y", "x"]}, schema=arrow_schema(columns))
    assert list(client.write_rows(path, WriteKind.UPSERT, [rows])) == [3]
    assert list(client.write_rows(path, WriteKind.DELETE, [rows.slice(0, 1)])) == [1]
    with client.scan(path) as scan:
        found = pa.Table.from_batches(scan, schema=scan.schema)
    assert found.sort_by("id").to_pylist() == rows.slice(1).to_pylist()
    ends = {info.bucket: info.log_end_offset for info in client.list_buckets([path])[path]}
    assert scan.log_offsets == ends
    # The command, too.
    command = [
        str(Path(sys.executable).with_name("fluss-tiering")),
        "scan",
        str(path),
        "-f",
        "json",
        "-s",
        server.target,
    ]
    written = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert sorted(json.loads(line)["name"] for line in written.splitlines()) == ["b", "c"]


def test_tables_that_others_make_alter_and_drop_are_followed(client: TieringClient, fluss: FlussClient) -> None:
    path, plain = TablePath("fluss", f"served_{next(_NUMBERS)}"), TablePath("fluss", f"served_{next(_NUMBERS)}")
    fluss.call(create_table(path, descriptor(freshness="1h")))
    fluss.call(create_table(plain, descriptor(tiered=False)))
    first = wait_until(lambda: status_of(client, path))
    assert status_of(client, plain) is None

    fluss.call(alter_table(plain, {"table.datalake.enabled": "true"}))
    wait_until(lambda: status_of(client, plain))
    fluss.call(alter_table(plain, {"table.datalake.enabled": "false"}))
    wait_until(lambda: status_of(client, plain) is None)
    # Another one of that name has nothing of the first one (S12).
    fluss.call(drop_table(path))
    fluss.call(create_table(path, descriptor(tiered=False)))
    wait_until(lambda: status_of(client, path) is None)
    assert client.get_tables([path])[0].table_id > first.table_id


@pytest.mark.system
def test_a_table_that_cannot_be_tiered_is_told_once_and_touches_no_other(
    server: ServerProcess, client: TieringClient, fluss: FlussClient
) -> None:  # Fluss #2360
    bad, good = TablePath("fluss", f"served_{next(_NUMBERS)}"), TablePath("fluss", f"served_{next(_NUMBERS)}")
    fluss.call(create_table(bad, descriptor(freshness="9999 d")))
    fluss.call(create_table(good, descriptor()))
    wait_until(lambda: status_of(client, good))
    later = new_path()
    fluss.call(create_table(TablePath("fluss", later.table), descriptor()))
    wait_until(lambda: status_of(client, TablePath("fluss", later.table)))
    told = [line for line in server.log_file.read_text().splitlines() if "table is not tiered" in line]
    assert len([line for line in told if str(bad) in line and "ten years" in line]) == 1
    # It keeps no server from its start either.
    server.stop()
    server.start()
    assert status_of(client, good) is not None
    assert status_of(client, bad) is None
    fluss.call(drop_table(bad))


# D53
@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMP_LTZ"])
def test_keys_that_would_be_one_key_in_the_lake_are_refused(
    server: ServerProcess, client: TieringClient, fluss: FlussClient, kind: str
) -> None:
    paths = {precision: TablePath("fluss", f"served_{next(_NUMBERS)}") for precision in (9, 7, 6)}
    for precision, path in paths.items():
        key = Column("at", DataType.parse(f"{kind}({precision}) NOT NULL"))
        made = replace(descriptor(), columns=(key,), primary_key=("at",), bucket_keys=("at",))
        fluss.call(create_table(path, made))

    wait_until(lambda: status_of(client, paths[6]))

    for precision in (9, 7):
        with refused(ErrorCode.INVALID_TABLE, "expected a precision of at most 6"):
            client.get_tables([paths[precision]])
        assert status_of(client, paths[precision]) is None
    for path in paths.values():
        fluss.call(drop_table(path))


@pytest.mark.system
def test_a_cluster_that_does_not_come_ends_the_start(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    process = ServerProcess(tmp_path, FLUSS_TIERING_FLUSS=f"localhost:{port}", FLUSS_TIERING_FLUSS_START_TIMEOUT="3s")
    with pytest.raises(RuntimeError) as failed:
        process.start()
    assert process.process is not None
    assert process.process.wait(WAIT_S) == 1
    text = re.sub(r"\s+", " ", str(failed.value))
    assert "Traceback" not in text
    assert text.count("waiting for the Fluss cluster") == 1
    assert f"error: the Fluss cluster at localhost:{port} could not be reached within 3 s: " in text
    assert "refused" in text


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "words"), [(b"HTTP/1.1 400 Bad Request\r\n\r\n", "Fluss"), (None, "silence")])
def test_a_server_of_another_kind_ends_the_start(tmp_path: Path, answer: bytes | None, words: str) -> None:
    with OtherServer(answer) as other:
        text = failed_start(tmp_path, fluss=other.target)
    assert other.target in text
    assert words in text


@pytest.mark.parametrize("password", ["wrong-one", None])
def test_refused_credentials_end_the_start(fluss_cluster: FlussCluster, tmp_path: Path, password: str | None) -> None:
    user = {} if password is None else {"fluss_username": USER.username, "fluss_password": password}
    text = failed_start(tmp_path, fluss=fluss_cluster.sasl_bootstrap, **user)
    assert "AUTHENTICATE_EXCEPTION" in text
    assert "SASL/PLAIN" in text
    assert "wrong-one" not in text


def failed_start(folder: Path, **settings: str) -> str:
    """What keeps a server from starting."""
    server = ServerThread(folder, metrics_enabled=False, fluss_start_timeout="2s", **settings)
    begun = time.monotonic()
    with pytest.raises(FlussTieringError) as failed, server:
        pass
    assert time.monotonic() - begun < 60
    return failed.value.message


def test_a_cluster_that_comes_later_is_waited_for(
    fluss_cluster: FlussCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (port,) = free_ports(1)
    said = ""
    with ExitStack() as stack:

        def come() -> None:
            nonlocal said
            while "waiting for the Fluss cluster" not in said:
                said += capsys.readouterr().out
            stack.enter_context(TcpProxy(fluss_cluster.coordinator.port, port))

        coming = threading.Thread(target=come)
        coming.start()
        server = ServerThread(tmp_path, fluss=f"localhost:{port}", metrics_enabled=False)
        with server, TieringClient(server.target) as client:
            assert client.describe_storage().kind == "fluss"
        coming.join()


def test_a_store_stays_with_its_cluster(fluss_cluster: FlussCluster, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"fluss": fluss_cluster.bootstrap, "metrics_enabled": False}
    # A folder with tables of the server's own first: its epochs and offsets are of those.
    with ServerThread(tmp_path / "own", metrics_enabled=False):
        pass
    with (
        pytest.raises(FlussTieringError, match="belongs to the storage at"),
        ServerThread(tmp_path / "own", **settings),
    ):
        pass
    # And the data folder is held, so that no second server writes to its store.
    with (
        ServerThread(tmp_path / "data", **settings),
        refused(ErrorCode.DATA_DIR_IN_USE),
        ServerThread(tmp_path / "data", **settings),
    ):
        pass


def test_the_second_server_of_a_cluster_takes_over(
    fluss_cluster: FlussCluster, tmp_path: Path, postgres_url: str
) -> None:
    settings: dict[str, Any] = {
        "fluss": fluss_cluster.bootstrap,
        "store_url": postgres_url,
        "leader_lease": 5000,
        "metrics_enabled": False,
    }
    path = new_path()
    with ExitStack() as first_stops:
        first = first_stops.enter_context(ServerThread(tmp_path / "first", **settings))
        # Nothing of the storage is in a folder: each has one of its own.
        with (
            ServerThread(tmp_path / "second", **settings) as second,
            TieringClient(f"{second.target},{first.target}") as client,
        ):
            assert (first.server.is_active, second.server.is_active) == (True, False)
            client.create_table(path, descriptor())
            before = status_of(client, path)
            first_stops.close()

            def answers_again() -> bool:
                try:
                    return client.list_buckets([path])[path][0].log_end_offset == 0
                except FlussTieringError as error:
                    if error.code not in SERVER_AWAY:
                        raise
                    return False

            wait_until(answers_again)
            after = status_of(client, path)
            assert before is not None
            assert after is not None
            assert after.tiering_epoch >= before.tiering_epoch
            client.drop_table(path, drop_untiered=True)


def test_an_old_cluster_without_leases_is_warned_of_once(
    fluss_cluster: FlussCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # L15
    serves = ServedApis.serves
    monkeypatch.setattr(ServedApis, "serves", lambda self, api: "LEASE" not in api.name and serves(self, api))
    with (
        ServerThread(tmp_path, fluss=fluss_cluster.bootstrap, metrics_enabled=False) as server,
        TieringClient(server.target) as client,
    ):
        table = client.create_table(new_path(), descriptor())
        with pytest.raises(FlussTieringError) as refused:
            client.acquire_lease("old", HOUR, {TableBucket(table.table_id, 0): 1})
        # From which a driver takes that it goes on without.
        assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
        assert client.list_leases("old") == []
        client.drop_table(table.path)
    said = capsys.readouterr().out
    assert said.count("the Fluss cluster has no KV snapshot leases") == 1
    assert "ACQUIRE_KV_SNAPSHOT_LEASE" in said


@pytest.mark.system
def test_deletes_that_the_cluster_would_ignore_are_refused(
    server: ServerProcess, client: TieringClient, tmp_path: Path
) -> None:
    path = new_path()
    client.create_table(path, descriptor(properties={"table.merge-engine": "first_row"}))
    keys = tmp_path / "keys.csv"
    keys.write_text("id\n1\n")
    refused = CliRunner().invoke(app, ["put", "--delete", str(path), str(keys), "--server", server.target])
    assert refused.exit_code == 1
    assert "ignores deletes (table.delete.behavior=IGNORE" in str(refused.exception)
    client.drop_table(path)


@pytest.mark.parametrize("lacking", [ApiKey.LAKE_TIERING_HEARTBEAT, ApiKey.PREPARE_LAKE_TABLE_SNAPSHOT])
def test_a_cluster_without_a_call_that_tiering_needs_ends_the_start(
    fluss_cluster: FlussCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: ApiKey
) -> None:
    # A version that is not known, as of a Fluss that is much older or newer.
    read = ServedApis.of

    def changed(response: ApiVersionsResponse) -> ServedApis:
        versions = dict(read(response).versions)
        return ServedApis({**versions, lacking: (7, 9)} if lacking in versions else versions)

    monkeypatch.setattr(ServedApis, "of", staticmethod(changed))
    text = failed_start(tmp_path, fluss=fluss_cluster.bootstrap)
    assert f"does not serve {lacking.name} ({lacking.value}) in a version that is known here" in text
    assert "expected Fluss 0.9.1 or 1.0; upgrade the cluster, or this server" in text


def test_the_settings_of_a_cluster(tmp_path: Path) -> None:
    assert load_settings(fluss="a:1, [::1]:2").fluss == "a:1,[::1]:2"
    for wrong, words in (
        ({"fluss": "nonsense"}, "HOST:PORT"),
        ({"fluss": "a:1", "fluss_username": "u"}, "expected both"),
        ({"fluss": "a:1", "fluss_password": "hidden"}, "expected both"),
        ({"fluss_username": "u", "fluss_password": "hidden"}, "address of the cluster"),
    ):
        with pytest.raises(FlussTieringError, match=words) as refused:
            load_settings(**wrong)
        assert refused.value.code is ErrorCode.INVALID_REQUEST
        assert "hidden" not in refused.value.message


def catalog_of(**settings: object) -> LakeCatalogProperties:
    return choose_backend(load_settings(**settings)).catalog


def test_the_cluster_says_where_the_lake_is_and_the_server_completes_it(tmp_path: Path) -> None:
    of_table = {"table.datalake.iceberg.type": "rest", "table.datalake.iceberg.uri": "http://a", "mine": "x"}
    plain = catalog_of(data_dir=tmp_path, fluss="a:1")
    assert list(tmp_path.iterdir()) == []
    assert plain.of(of_table) == {"type": "rest", "uri": "http://a"}
    own = {"type": "rest", "uri": "http://b", "token": "t"}
    assert catalog_of(data_dir=tmp_path, fluss="a:1", lake_catalog=own).of(of_table) == own
    embedded = catalog_of(data_dir=tmp_path, lake_catalog=own)
    assert embedded.of(of_table) == {**own, "uri": "http://a"}
