"""Calls of every method of the services, by callers of our choice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass

from fluss_tiering.api.v1 import kv_scan_pb2, kv_snapshot_leases_pb2, lake_tiering_pb2, tables_pb2

METHODS: dict[str, MethodDescriptor] = {
    f"/{service.full_name}/{method.name}": method
    for file in (kv_scan_pb2, kv_snapshot_leases_pb2, lake_tiering_pb2, tables_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
"""Every method of the services, as the protos define it."""

REFUSED = {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED}


def call(
    channel: grpc.Channel, path: str, token: str | None = None, request: bytes = b"", **metadata: str | bytes
) -> tuple[grpc.StatusCode, str]:
    """Call a method with an empty request, or with these bytes, and return the status and its details.

    The first answer of a stream stands for all of it.
    """
    pairs = [(key.replace("_", "-"), value) for key, value in metadata.items()]
    if token is not None:
        pairs.append(("authorization", f"Bearer {token}"))
    stream: Callable[..., Any] = channel.stream_stream(path)
    answers = stream(iter([request]), metadata=pairs, timeout=30)
    try:
        next(answers, None)
    except grpc.RpcError as error:
        failed: Any = error
        return failed.code(), failed.details()
    finally:
        answers.cancel()
    return grpc.StatusCode.OK, ""


def empty_request(path: str) -> bytes:
    """Return the bytes of an empty request of a method."""
    return bytes(GetMessageClass(METHODS[path].input_type)().SerializeToString())
