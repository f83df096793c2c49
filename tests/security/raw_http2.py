"""A client that speaks HTTP/2 byte by byte, to do what no gRPC client does: hold requests back, and take no answers."""

from __future__ import annotations

import socket
import struct
from typing import Self

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING = 0, 1, 3, 4, 6
_END_STREAM, _ACK, _END_HEADERS = 1, 1, 4
_INITIAL_WINDOW = 4
WAIT_S = 60.0


def message(content: bytes) -> bytes:
    """Return a message as gRPC frames it."""
    return struct.pack(">BI", 0, len(content)) + content


class RawClient:
    """A connection.

    Args:
        target: The "host:port" of the server.
        window: The number of bytes of each answer that the server may send before the client takes them.
    """

    def __init__(self, target: str, window: int = 65_535) -> None:
        host, _, port = target.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=WAIT_S)
        self._received = b""
        self._next_stream = 1
        self._socket.sendall(_PREFACE)
        self._send(_SETTINGS, 0, 0, struct.pack(">HI", _INITIAL_WINDOW, window))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._socket.close()

    def call(self, method: str, token: str | None, data: bytes, *, finished: bool) -> int:
        """Begin a call with some bytes of its requests, and return the number of its stream."""
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        headers = {
            ":method": "POST",
            ":scheme": "http",
            ":path": method,
            ":authority": "x",
            "content-type": "application/grpc",
            "te": "trailers",
        }
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        self._send(_HEADERS, _END_HEADERS, stream, b"".join(_literal(*header) for header in headers.items()))
        self._send(_DATA, _END_STREAM if finished else 0, stream, data)
        return stream

    def ends(self, stream: int) -> bool:
        """Return whether the server ends a stream, before it closes the connection."""
        while (frame := self._frame()) is not None:
            kind, flags, number = frame
            ended = kind == _RESET or (kind in (_HEADERS, _DATA) and flags & _END_STREAM)
            if number == stream and ended:
                return True
        return False

    def begins(self, stream: int) -> bool:
        """Return whether the server begins to answer a stream, before it closes the connection."""
        while (frame := self._frame()) is not None:
            kind, flags, number = frame
            if number == stream and kind == _HEADERS and not flags & _END_STREAM:
                return True
        return False

    def is_closed(self) -> bool:
        """Wait until the server closes the connection. What it sends meanwhile is read, but nothing more is granted."""
        while self._frame() is not None:
            pass
        return True

    def is_open(self) -> bool:
        """Return whether the server has not closed the connection so far."""
        self._socket.setblocking(False)
        try:
            while received := self._socket.recv(1 << 16):
                self._received += received
        except BlockingIOError:
            return True
        except ConnectionError:
            return False
        finally:
            self._socket.settimeout(WAIT_S)
        return False

    def _frame(self) -> tuple[int, int, int] | None:
        header = self._take(9)
        if header is None:
            return None
        kind, flags, stream = struct.unpack(">xxxBBI", header)
        content = self._take(int.from_bytes(header[:3], "big"))
        if content is None:
            return None
        if kind in (_SETTINGS, _PING) and not flags & _ACK:
            self._send(kind, _ACK, 0, content if kind == _PING else b"")
        return kind, flags, stream

    def _take(self, size: int) -> bytes | None:
        while len(self._received) < size:
            try:
                received = self._socket.recv(1 << 16)
            except ConnectionError:
                return None
            if not received:
                return None
            self._received += received
        taken, self._received = self._received[:size], self._received[size:]
        return taken

    def _send(self, kind: int, flags: int, stream: int, content: bytes) -> None:
        self._socket.sendall(len(content).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, stream) + content)


def _literal(name: str, value: str) -> bytes:
    """Return a header as HPACK writes it without its tables."""
    return b"\0" + _text(name) + _text(value)


def _text(text: str) -> bytes:
    size = len(text)
    if size < 0x7F:
        return bytes([size]) + text.encode()
    rest, more = size - 0x7F, b"\x7f"
    while rest >= 0x80:
        more, rest = more + bytes([rest & 0x7F | 0x80]), rest >> 7
    return more + bytes([rest]) + text.encode()
