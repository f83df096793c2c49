"""Measures heartbeats of one caller while another one makes as many calls as it can."""

from __future__ import annotations

import multiprocessing
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, Final

import grpc

from benchmarks.control import Figure, make_tables
from benchmarks.requests import serve
from fluss_tiering.api.v1 import lake_tiering_pb2
from fluss_tiering.server.edge.callers.roles import Grant
from fluss_tiering.server.edge.callers.tokens import StaticToken, TokenFile

_BOUND_MS: Final = 200
_CALLS_PER_S: Final = 2000
_SECONDS: Final = 10
_PAUSE_S: Final = 0.02
_IN_FLIGHT: Final = 200
_HEARTBEAT: Final = "/fluss_tiering.v1.LakeTiering/LakeTieringHeartbeat"
_LIST: Final = "/fluss_tiering.v1.LakeTiering/ListTieringStatuses"


def measure(scale: float) -> Iterator[Figure]:
    """Yield the 99th percentile of heartbeats, alone and during each storm."""
    seconds = max(2.0, _SECONDS * min(scale, 1))
    with tempfile.TemporaryDirectory(prefix="fluss-tiering-storm-") as text:
        folder = Path(text)
        spawn = multiprocessing.get_context("spawn")
        making = spawn.Process(target=make_tables, args=(folder / "data", 1000))
        making.start()
        making.join()
        tokens: dict[str, str] = {}
        file = TokenFile(folder / "tokens.json")
        for name in ("storm", "driver"):
            made, tokens[name] = StaticToken.create(name, [Grant.parse("tierer")], datetime.now(UTC), None)
            file.add(made)
        longest, port, stop = spawn.Value("d", 0.0), spawn.Value("i", 0), spawn.Event()
        settings = {"tokens_file": str(file.path), "audit_log": str(folder / "audit.jsonl")}
        server = spawn.Process(target=serve, args=(folder / "data", longest, port, stop, settings))
        server.start()
        try:
            while port.value == 0:
                time.sleep(0.05)
            target = f"127.0.0.1:{port.value}"
            for work, token in (
                ("alone", None),
                (f"{_CALLS_PER_S:,} lists of 1,000 statuses a second by another caller", tokens["storm"]),
                (f"{_CALLS_PER_S:,} calls a second with a wrong token", "flt_0123456789ab_wrong"),
            ):
                yield _figure(target, work, token, tokens["driver"], seconds)
        finally:
            stop.set()
            server.join()


def _figure(target: str, work: str, token: str | None, driver: str, seconds: float) -> Figure:
    spawn = multiprocessing.get_context("spawn")
    counts, ended = spawn.Array("q", 2), spawn.Event()
    storm = None
    if token is not None:
        storm = spawn.Process(target=_storm, args=(target, token, counts, ended))
        storm.start()
        while counts[0] + counts[1] == 0:
            time.sleep(0.01)
        counts[0] = counts[1] = 0
    took = sorted(_heartbeats(target, driver, seconds))
    answered, refused = counts[0] / seconds, counts[1] / seconds
    if storm is not None:
        ended.set()
        storm.join()
        work += f" ({answered:,.0f}/s answered, {refused:,.0f}/s refused)"
    p99 = took[int(len(took) * 0.99)] * 1000
    return Figure(f"heartbeats p99, {work}", f"{p99:.1f} ms", f"<= {_BOUND_MS} ms", p99 <= _BOUND_MS)


def _heartbeats(target: str, token: str, seconds: float) -> Iterator[float]:
    message = lake_tiering_pb2.LakeTieringHeartbeatRequest().SerializeToString()
    until = time.monotonic() + seconds
    with grpc.insecure_channel(target) as channel:
        call: Any = channel.unary_unary(_HEARTBEAT)
        while time.monotonic() < until:
            began = time.perf_counter()
            call(message, metadata=[("authorization", f"Bearer {token}")], timeout=60)
            yield time.perf_counter() - began
            time.sleep(_PAUSE_S)


def _storm(target: str, token: str, counts: Any, ended: Event) -> None:  # noqa: ANN401 - values of multiprocessing
    in_flight = threading.Semaphore(_IN_FLIGHT)

    def done(answer: Any) -> None:  # noqa: ANN401 - a future of gRPC
        counts[0 if answer.code() is grpc.StatusCode.OK else 1] += 1
        in_flight.release()

    with grpc.insecure_channel(
        target, [("grpc.enable_retries", 0), ("grpc.max_receive_message_length", -1)]
    ) as channel:
        call: Any = channel.unary_unary(_LIST)
        next_at = time.monotonic()
        while not ended.is_set():
            in_flight.acquire()
            call.future(b"", metadata=[("authorization", f"Bearer {token}")], timeout=60).add_done_callback(done)
            next_at += 1 / _CALLS_PER_S
            time.sleep(max(0.0, next_at - time.monotonic()))
