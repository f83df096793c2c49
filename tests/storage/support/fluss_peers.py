"""Scripted servers on real sockets for tests of connections."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping

from fluss_tiering.api.fluss.v1.connection_pb2 import ApiVersionsResponse, ErrorResponse, PbApiVersion
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey
from fluss_tiering.storage.fluss.rpc.call import ServerAddress


class Line:
    """A scripted server's end of a connection."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected

    def request(self) -> tuple[int, int, int, bytes]:
        """Return api key, version, request id and message of the next request."""
        (length,) = struct.unpack(">i", self._exactly(4))
        frame = self._exactly(length)
        return (*struct.unpack(">hhi", frame[:8]), frame[8:])

    def answer(self, request_id: int, message) -> None:
        self._send(struct.pack(">bi", 0, request_id) + message.SerializeToString())

    def error(self, request_id: int, number: int, text: str) -> None:
        error = ErrorResponse(error_code=number, error_message=text)
        self._send(struct.pack(">bi", 1, request_id) + error.SerializeToString())

    def fail(self, number: int, text: str) -> None:
        self._send(b"\x02" + ErrorResponse(error_code=number, error_message=text).SerializeToString())

    def greet(self, *served: ApiKey, highest: Mapping[ApiKey, int] | None = None) -> None:
        """Answer API_VERSIONS with version 0 of each of these, or versions up to a highest one."""
        api, _, request_id, _ = self.request()
        assert api == ApiKey.API_VERSIONS
        versions = [
            PbApiVersion(api_key=each, min_version=0, max_version=last)
            for each, last in (dict.fromkeys(served, 0) | dict(highest or {})).items()
        ]
        self.answer(request_id, ApiVersionsResponse(api_versions=versions))

    def wait_for_end(self) -> bytes:
        """Return what else comes until the client hangs up."""
        return b"".join(iter(self._receive, b""))

    def _receive(self) -> bytes:
        try:
            return self.socket.recv(65536)
        except ConnectionResetError:
            return b""

    def _send(self, frame: bytes) -> None:
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise EOFError
            data += more
        return data


@contextlib.contextmanager
def peer(script: Callable[[Line], None]) -> Iterator[ServerAddress]:
    """A server that runs the script on each connection. An error of the script fails the test."""
    failures: list[BaseException] = []
    listening = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []

    def serve(connected: socket.socket) -> None:
        with connected:
            connected.settimeout(20)
            try:
                script(Line(connected))
            except (EOFError, ConnectionResetError, BrokenPipeError):
                pass
            except BaseException as error:  # noqa: BLE001
                failures.append(error)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connected, _ = listening.accept()
                threads.append(threading.Thread(target=serve, args=(connected,), daemon=True))
                threads[-1].start()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield ServerAddress("127.0.0.1", listening.getsockname()[1])
    finally:
        with contextlib.suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        for thread in threads:
            thread.join(20)
    assert not failures, failures
