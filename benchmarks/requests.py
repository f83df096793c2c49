"""Measures how long the worst request of each call keeps the server's event loop from all other calls."""

from __future__ import annotations

import asyncio
import ctypes
import multiprocessing
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, Final

import grpc
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from benchmarks.control import Figure
from fluss_tiering.client import TieringClient
from fluss_tiering.model.table import Column, DataType, TableDescriptor, TablePath
from fluss_tiering.server.app import TieringServer
from fluss_tiering.server.edge.limits import REQUEST_BYTES
from fluss_tiering.server.edge.methods import REQUEST_SIZES, SERVICES
from fluss_tiering.server.logs import configure_logs
from fluss_tiering.server.settings.server_settings import load_settings

_BOUND_MS: Final = 200
_LIMIT: Final = 8 << 20
_COUNTS: Final = (10_000, 1 << 18, _LIMIT)
_SAMPLE_S: Final = 0.002
_VALUES: Final[dict[str, Any]] = {
    "lease_id": "lease",
    "lease_duration_ms": 60_000,
    "database_name": "shop",
    "table_name": "orders",
    "commit_id": "commit",
    "driver": "driver",
    "num_buckets": 1,
    "root": 2,
    "batch_size_bytes": 1 << 20,
}
"""Values with which a request gets as far as possible."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request.

    Attributes:
        method: The path of the method.
        what: What is large.
        message: The serialized request.
    """

    method: str
    what: str
    message: bytes


def requests_of(method: MethodDescriptor, limit: int = _LIMIT) -> Iterator[Request]:
    """Yield large requests of a method, of at most `limit` bytes each."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    if not REQUEST_SIZES[path]:
        limit = min(limit, REQUEST_BYTES)
    for what, message in _large(method.input_type, limit, ()):
        yield Request(path, what, message)


def measure(scale: float) -> Iterator[Figure]:
    """Yield the longest stall of each call's worst request."""
    worst = sorted(stalls(int(_LIMIT * min(scale, 1))), key=lambda each: each[1])
    by_method = {request.method: (request, seconds) for request, seconds in worst}
    for request, seconds in sorted(by_method.values(), key=lambda each: -each[1]):
        yield Figure(
            f"{request.method.rpartition('/')[2]}: {request.what}, {len(request.message) / 1e6:.1f} MB",
            f"{seconds * 1000:,.0f} ms",
            f"<= {_BOUND_MS} ms",
            seconds * 1000 <= _BOUND_MS,
        )


def stalls(limit: int = _LIMIT) -> Iterator[tuple[Request, float]]:
    """Yield the requests of all unary calls, each with the longest time for which the event loop stood still.

    Args:
        limit: The size of the largest requests, in bytes.
    """
    spawn = multiprocessing.get_context("spawn")
    longest, port, stop = spawn.Value(ctypes.c_double, 0.0), spawn.Value(ctypes.c_int, 0), spawn.Event()
    with tempfile.TemporaryDirectory(prefix="fluss-tiering-requests-") as folder:
        server = spawn.Process(target=serve, args=(Path(folder), longest, port, stop))
        server.start()
        try:
            while port.value == 0:
                time.sleep(0.05)
            target = f"127.0.0.1:{port.value}"
            _make_table(target)
            with grpc.insecure_channel(target, (("grpc.max_send_message_length", 64 << 20),)) as channel:
                for service in SERVICES:
                    for method in service.methods:
                        if not method.client_streaming and not method.server_streaming:
                            for request in requests_of(method, limit):
                                longest.value = 0.0
                                _call(channel, request)
                                time.sleep(3 * _SAMPLE_S)
                                yield request, longest.value
        finally:
            stop.set()
            server.join()


def _call(channel: grpc.Channel, request: Request) -> None:
    unary: Any = channel.unary_unary(request.method)
    try:
        unary(request.message, timeout=120)
    except grpc.RpcError:
        return


def _make_table(target: str) -> None:
    columns = (Column("id", DataType.parse("BIGINT NOT NULL")), Column("name", DataType.parse("STRING")))
    with TieringClient(target) as client:
        client.create_table(
            TablePath("shop", "orders"),
            TableDescriptor(columns, ("id",), ("id",), 1, properties={"table.datalake.enabled": "true"}),
        )


def serve(
    folder: Path,
    longest: Any,  # noqa: ANN401 - a value of multiprocessing
    port: Any,  # noqa: ANN401 - likewise
    stop: Event,
    settings: Mapping[str, Any] | None = None,
) -> None:
    """Run a server until it is stopped.

    Args:
        folder: The data folder.
        longest: Gets the longest time for which the event loop stood still, in seconds.
        port: Gets the port of the server.
        stop: Ends the server when it is set.
        settings: Further settings.
    """
    configure_logs("logfmt", "ERROR")

    given = {"data_dir": folder, "port": 0, "metrics_enabled": False, "shutdown_grace": 1000, **(settings or {})}

    async def run() -> None:
        server = TieringServer(load_settings(**given))
        await server.start()
        port.value = server.port
        while not stop.is_set():
            began = time.perf_counter()
            await asyncio.sleep(_SAMPLE_S)
            longest.value = max(longest.value, time.perf_counter() - began - _SAMPLE_S)
        await server.stop()

    asyncio.run(run())


def _large(descriptor: Descriptor, limit: int, outer: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    """Yield serialized messages in which one field is as large as may be."""
    if outer.count(descriptor.full_name) > 1:
        return
    for field in descriptor.fields:
        for what, value in _large_values(field, limit, (*outer, descriptor.full_name)):
            message = _small(descriptor)
            message.ClearField(field.name)
            yield what, message.SerializeToString() + value


def _large_values(field: FieldDescriptor, limit: int, outer: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    if not field.is_repeated:
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for what, value in _large(_type(field), limit - 16, outer):
                yield f"{field.name}.{what}", _entry(field, value)
        elif field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
            yield field.name, _entry(field, b"x" * (limit - 64))
        return
    for count in _COUNTS:
        for kind in ("empty", "same", "distinct"):
            yield f"{field.name}, {kind}, {count:,}", _entries(field, kind, count, limit - 64)
    if field.type == FieldDescriptor.TYPE_MESSAGE and not _type(field).GetOptions().map_entry:
        for what, value in _large(_type(field), limit - 64, outer):
            yield f"{field.name}[0].{what}", _entry(field, value)


def _entries(field: FieldDescriptor, kind: str, count: int, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    for number in range(count):
        part = _entry(field, _value(field, kind, number))
        size += len(part)
        if size > limit:
            break
        parts.append(part)
    return b"".join(parts)


def _value(field: FieldDescriptor, kind: str, number: int) -> bytes:
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        if kind == "empty":
            return b""
        message = _small(_type(field))
        if kind == "distinct":
            _number(message, number)
        return message.SerializeToString()
    if field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
        return b"" if kind == "empty" else (b"x%d" % (number if kind == "distinct" else 0))
    return _varint(number if kind == "distinct" else 0)


def _small(descriptor: Descriptor) -> Message:
    message = GetMessageClass(descriptor)()
    for field in descriptor.fields:
        if field.is_repeated:
            continue
        if field.name in _VALUES:
            setattr(message, field.name, _VALUES[field.name])
        elif field.name == "table_path":
            getattr(message, field.name).CopyFrom(_small(_type(field)))
        elif field.name == "data_type":
            getattr(message, field.name).root = 2
        elif field.name == "descriptor":
            getattr(message, field.name).num_buckets = 1
    return message


def _number(message: Message, number: int) -> None:
    """Make a message differ from the others of a repeated field."""
    for field in message.DESCRIPTOR.fields:
        if field.is_repeated:
            continue
        if field.name in ("bucket_id", "snapshot_id", "tiering_epoch"):
            setattr(message, field.name, number)
        elif field.name in ("table_name", "lease_id", "name", "key"):
            setattr(message, field.name, f"t{number}")


def _type(field: FieldDescriptor) -> Descriptor:
    found = field.message_type
    assert found is not None
    return found


def _entry(field: FieldDescriptor, value: bytes) -> bytes:
    if field.type in (FieldDescriptor.TYPE_MESSAGE, FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
        return _varint(field.number << 3 | 2) + _varint(len(value)) + value
    return _varint(field.number << 3) + value


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
