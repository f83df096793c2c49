"""The rules of scans, held against a Fluss 1.0 cluster, our server in front of it, and our server on its own storage.

`scan_rules.py` has the scenarios and what each server answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
import pyarrow as pa
import pytest
from scan_rules import CLOSED, EMBEDDED, END, FLUSS, FRONT, MAX_BATCH, MORE, RULES, Answer, Rule, Scanning

from engine_support import ServerThread, VirtualClock
from fluss_support import FlussCluster
from fluss_tiering.api.fluss.v1 import kv_scan_pb2 as fluss_pb
from fluss_tiering.api.v1 import kv_scan_pb2 as pb
from fluss_tiering.api.v1.kv_scan_pb2_grpc import KvScanStub
from fluss_tiering.client import TieringClient
from fluss_tiering.formats.compacted.kv_batches import stored_values
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey
from fluss_tiering.storage.fluss.rpc.call import Call, ServerAddress, ServerKind
from fluss_tiering.storage.fluss.rpc.connection import FlussConnection
from fluss_tiering.storage.fluss.rpc.errors import FlussServerError
from fluss_tiering.wire.errors import code_from_metadata
from needs import needs

PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "explanation" / "scans.md"


@dataclass(frozen=True)
class Running:
    """One of our servers, with a clock that does not go by itself."""

    server: ServerThread
    clock: VirtualClock


@contextmanager
def running(folder: Path, **settings: Any) -> Iterator[Running]:
    clock = VirtualClock()
    limits = {
        "kv_scanner_max_per_bucket": 3,
        "kv_scanner_max_per_server": 5,
        "kv_scanner_max_batch_size": MAX_BATCH,
        "kv_scanner_expiration_interval": 20,
    }
    with ServerThread(folder, clock=clock, **limits, **settings) as started:
        yield Running(started, clock)


@contextmanager
def one_tablet_server(folder: Path, version: str, **settings: str) -> Iterator[FlussCluster]:
    settings |= {"kv.scanner.max-per-bucket": "3", "kv.scanner.max-per-server": "5"}
    settings |= {"kv.scanner.max-batch-size": f"{MAX_BATCH}b"}
    with FlussCluster(folder, version=version, tablet_servers=1, settings=settings) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("embedded") / "data") as started:
        yield started


@pytest.fixture(scope="module")
@needs("cluster")
def cluster(fluss_version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FlussCluster, Running]]:
    """A cluster with low limits, and our server in front of it."""
    folder = tmp_path_factory.mktemp("limits")
    with (
        one_tablet_server(folder / "cluster", fluss_version) as started,
        running(folder / "data", fluss=started.bootstrap) as front,
    ):
        yield started, front


@pytest.fixture(scope="module")
@needs("cluster")
def hasty(fluss_version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FlussCluster, Running]]:
    """A cluster whose scan sessions expire soon, since Fluss's clock cannot be turned forward."""
    folder = tmp_path_factory.mktemp("hasty")
    settings = {"kv.scanner.ttl": "2s", "kv.scanner.expiration-interval": "100ms"}
    with (
        one_tablet_server(folder / "cluster", fluss_version, **settings) as started,
        running(folder / "data", fluss=started.bootstrap) as front,
    ):
        yield started, front


@contextmanager
def _asking_us(us: Running) -> Iterator[Scanning]:
    with TieringClient(us.server.target) as client, grpc.insecure_channel(us.server.target) as channel:
        stub = KvScanStub(channel)

        def send(fields: Mapping[str, Any]) -> Answer:
            try:
                answer = stub.ScanKv(pb.ScanKvRequest(**fields), timeout=60)
            except grpc.RpcError as error:
                return Answer(code_from_metadata(error.trailing_metadata()))
            if not answer.records:
                return _answer(fields, answer, [])
            with pa.ipc.open_stream(answer.records) as stored:
                return _answer(fields, answer, stored.read_all()["value"].to_pylist())

        on = Scanning(client, send, us.clock.advance)
        try:
            yield on
        finally:
            on.end()


@contextmanager
def _asking_fluss(cluster: FlussCluster, front: Running) -> Iterator[Scanning]:
    connection = FlussConnection(ServerAddress("localhost", cluster.tablet_servers[0].port))

    def send(fields: Mapping[str, Any]) -> Answer:
        request = fluss_pb.ScanKvRequest(**fields)
        call = Call(ApiKey.SCAN_KV, request, fluss_pb.ScanKvResponse, lambda answer: answer, ServerKind.ANY)
        answer = connection.call(call, timeout=60)
        if answer.error_code:
            return Answer(FlussServerError.of(answer.error_code, answer.error_message).code)
        return _answer(fields, answer, stored_values(answer.records).to_pylist())

    with TieringClient(front.server.target) as client:
        on = Scanning(client, send, lambda _: None)
        try:
            yield on
        finally:
            on.end()
            connection.close()


def _answer(fields: Mapping[str, Any], answer: Any, values: Sequence[bytes]) -> Answer:
    if fields.get("close_scanner"):
        return Answer(CLOSED)
    return Answer(
        MORE if answer.has_more_results else END,
        answer.scanner_id if answer.HasField("scanner_id") else None,
        values,
        answer.log_offset if answer.HasField("log_offset") else None,
    )


def plays(*, expiring: bool | None = None) -> pytest.MarkDecorator:
    chosen = [each for each in RULES if expiring in {None, each.number in {"K10", "K11"}}]
    return pytest.mark.parametrize("at", chosen, ids=lambda each: each.name)


@plays(expiring=False)
@pytest.mark.fluss_versions("1.0")
def test_a_rule_of_scans_in_fluss(at: Rule, cluster: tuple[FlussCluster, Running]) -> None:
    # K2, K3, K4, K5, K6, K7, K8, K9, K12, K13, K14, K15, K17
    with _asking_fluss(*cluster) as on:
        assert at.play(on) == at.expected(FLUSS)


@pytest.mark.long
@plays(expiring=True)
@pytest.mark.fluss_versions("1.0")
def test_a_rule_of_scans_that_expire_in_fluss(at: Rule, hasty: tuple[FlussCluster, Running]) -> None:
    # K10, K11
    with _asking_fluss(*hasty) as on:
        assert at.play(on) == at.expected(FLUSS)


@plays()
@pytest.mark.fluss_versions("1.0")
def test_a_rule_of_scans_in_front_of_a_cluster(at: Rule, cluster: tuple[FlussCluster, Running]) -> None:
    # K2, K3, K4, K5, K6, K7, K8, K9, K10, K11, K12, K13, K14, K15, K17
    with _asking_us(cluster[1]) as on:
        assert at.play(on) == at.expected(FRONT)


@plays()
def test_a_rule_of_scans_of_the_embedded_storage(at: Rule, embedded: Running) -> None:
    # K2, K3, K4, K5, K6, K7, K8, K9, K10, K11, K12, K13, K14, K15, K17
    with _asking_us(embedded) as on:
        assert at.play(on) == at.expected(EMBEDDED)


def test_the_documentation_names_each_rule_in_which_the_servers_differ() -> None:
    different = {at.number for at in RULES if at.answers}
    assert set(re.findall(r"^\| (K\d+) \|", PAGE.read_text(), re.MULTILINE)) >= different
