"""A gRPC proxy in front of a real server: it passes on every call, except for faults that a test injects."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import grpc

Fault = Callable[[grpc.ServicerContext, int], None]
"""A fault. It receives the call's context and number, counted from 1 for each method. It may abort the call or wait."""

_OPTIONS = (("grpc.max_receive_message_length", 64 << 20), ("grpc.max_send_message_length", 64 << 20))


class FaultProxy(grpc.GenericRpcHandler):
    """A running proxy, as a context manager.

    Attributes:
        faults: The faults, by the name of the method or of its service (`KvSnapshotLeases`).
        answer_faults: The faults that meet the answer of a call, which the server has done, by the same names.
        calls: How often each method was called.
    """

    def __init__(self, target: str) -> None:
        self.faults: dict[str, Fault] = {}
        self.answer_faults: dict[str, Fault] = {}
        self.calls: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._channel = grpc.insecure_channel(target, _OPTIONS)
        self._server = grpc.server(ThreadPoolExecutor(32), handlers=[self], options=_OPTIONS)
        self._port = self._server.add_insecure_port("127.0.0.1:0")

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._server.stop(0).wait(10)
        self._channel.close()

    def service(self, details: Any) -> grpc.RpcMethodHandler:
        method: str = details.method
        return grpc.stream_stream_rpc_method_handler(lambda requests, context: self._pass(method, requests, context))

    def _pass(self, method: str, requests: Iterable[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        package, name = method.removeprefix("/").split("/")
        with self._lock:
            self.calls[name] += 1
            number = self.calls[name]
        keys = (name, package.rpartition(".")[2])
        for key in keys:
            if fault := self.faults.get(key):
                fault(context, number)
        call = self._channel.stream_stream(method)(requests)
        try:
            for answer in call:
                for key in keys:
                    if fault := self.answer_faults.get(key):
                        fault(context, number)
                yield answer
        except grpc.RpcError:
            context.set_trailing_metadata(call.trailing_metadata() or ())
            context.abort(call.code(), call.details() or "")


def refused(status: grpc.StatusCode, details: str, *, times: int | None = None) -> Fault:
    """Return a fault: the first calls, or all, end with this status."""

    def fault(context: grpc.ServicerContext, number: int) -> None:
        if times is None or number <= times:
            context.abort(status, details)

    return fault
