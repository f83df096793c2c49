"""A proxy in front of the tiering server that keeps rounds in Tiering until a test lets them go on."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterable, Iterator
from typing import Any, Final

import grpc
import pyarrow as pa

from fault_proxy import FaultProxy
from fluss_tiering.api.v1 import tables_pb2 as pb
from waiting import wait_until

_EVERY_S: Final = 1.0
_POLL_S: Final = 0.1


def _empty_entries() -> bytes:
    sink = io.BytesIO()
    pa.ipc.new_stream(sink, pa.schema([("key", pa.binary()), ("value", pa.binary())])).close()
    return sink.getvalue()


_NOTHING_YET: Final = {
    "FetchLog": pb.FetchLogResponse().SerializeToString(),
    "FetchKvSnapshot": pb.FetchKvSnapshotResponse(arrow_ipc=_empty_entries()).SerializeToString(),
}
"""Answers without rows: a reader that gets one waits for the next, however long that takes."""


class HoldingProxy(FaultProxy):
    """Passes on every call. While it holds, calls that read rows get answers without rows.

    Attributes:
        tables: The ids of the tables whose rows are held; None for all tables.
    """

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self.tables: frozenset[int] | None = None
        self._go = threading.Event()
        self._go.set()
        self._held: set[int] = set()

    def hold(self) -> None:
        """Give no rows from now on."""
        self._held.clear()
        self._go.clear()

    def go(self) -> None:
        """Give the rows."""
        self._go.set()

    def wait_until_held(self, *tables: int) -> None:
        """Return when rows of all these tables were asked for since `hold`."""
        wait_until(lambda: self._held.issuperset(tables), 240, every=0.2, describe=lambda: f"held: {self._held}")

    def wait_until_any_held(self) -> None:
        """Return when rows of any table were asked for since `hold`."""
        wait_until(lambda: self._held, 240, every=0.2)

    def _pass(self, method: str, requests: Iterable[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        name = method.rpartition("/")[2]
        if name == "DescribeStorage":
            yield from map(_without_folder, super()._pass(method, requests, context))
            return
        if name not in _NOTHING_YET:
            yield from super()._pass(method, requests, context)
            return
        request = next(iter(requests))
        table = _table_of(name, request)
        while context.is_active() and not self._go.is_set() and (self.tables is None or table in self.tables):
            self._held.add(table)
            yield _NOTHING_YET[name]
            self._go.wait(_EVERY_S)
        yield from super()._pass(method, iter([request]), context)


class HeldCall:
    """A fault that keeps calls waiting until a test lets them go on.

    Attributes:
        waiting: How many calls wait.
    """

    def __init__(self) -> None:
        self.waiting = 0
        self._lock = threading.Lock()
        self._go = threading.Event()

    def __call__(self, context: grpc.ServicerContext, number: int) -> None:
        """Wait for as long as the client does."""
        self._count(1)
        while context.is_active() and not self._go.is_set():
            self._go.wait(_POLL_S)
        self._count(-1)

    def go(self) -> None:
        """Let the calls go on."""
        self._go.set()

    def _count(self, by: int) -> None:
        with self._lock:
            self.waiting += by


def _without_folder(answer: bytes) -> bytes:
    """Hide the data folder, so that workers read from the server, as on another machine, and not the files."""
    description = pb.DescribeStorageResponse.FromString(answer)
    description.data_dir = ""
    return description.SerializeToString()


def _table_of(name: str, request: bytes) -> int:
    message: Any = pb.FetchLogRequest() if name == "FetchLog" else pb.FetchKvSnapshotRequest()
    message.ParseFromString(request)
    return int(message.bucket.table_id)
