"""The connections of this process with its clients, found among its file descriptors: gRPC does not show them."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import stat
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import structlog

from fluss_tiering.server.audit.call import address_of_peer, host_of

logger = structlog.get_logger(__name__)

_DESCRIPTORS: Final = next((folder for folder in map(Path, ("/proc/self/fd", "/dev/fd")) if folder.is_dir()), None)

_RECEIVED_AT: Final = 128
"""The position of tcpi_bytes_received in Linux's struct tcp_info (include/uapi/linux/tcp.h)."""

_LOOK_S: Final = 0.25

_MAX_TRIED: Final = 1 << 16

_MAPPED: Final = "::ffff:"
"""The beginning of an IPv4 address at a port that listens for IPv6 too."""


def accepted_on(port: int) -> Iterator[socket.socket]:
    """Yield the connections that clients have opened to a port of this process.

    Each may be used until the next one is asked for.
    """
    for descriptor in _descriptors():
        # The descriptor may have been closed meanwhile, and one that only listens has no other end.
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                with _opened(descriptor) as found:
                    of_tcp = found.family in (socket.AF_INET, socket.AF_INET6) and found.type == socket.SOCK_STREAM
                    if of_tcp and found.getsockname()[1] == port and found.getpeername():
                        yield found


def _descriptors() -> Iterable[int]:
    """Return the descriptors of this process, and some that may be."""
    try:
        return [] if _DESCRIPTORS is None else [int(name) for name in os.listdir(_DESCRIPTORS)]  # noqa: PTH208
    except OSError:
        # To list them takes another one. Where no more may be opened, there are few enough to try them all.
        return range(min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], _MAX_TRIED))


@contextlib.contextmanager
def _opened(descriptor: int) -> Iterator[socket.socket]:
    try:
        # A copy cannot become another connection while it is looked at.
        copy = os.dup(descriptor)
    except OSError:
        found = socket.socket(fileno=descriptor)
        try:
            yield found
        finally:
            found.detach()
        return
    with socket.socket(fileno=copy) as found:
        yield found


def address_of(connection: socket.socket) -> str:
    """Return the "host:port" of the other end, as gRPC writes it."""
    host, port = connection.getpeername()[:2]
    host = host.removeprefix(_MAPPED)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def close_connection(port: int, peer: str) -> bool:
    """Close the connection of a client with a port of this process. All calls on it end.

    Args:
        port: The port.
        peer: The address of the client, as gRPC names it.

    Returns:
        Whether there was such a connection.
    """
    wanted = address_of_peer(peer)
    for connection in accepted_on(port):
        if address_of(connection) == wanted:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            return True
    return False


class ConnectionWatch:
    """Closes connections of which there are too many: gRPC accepts any number, until no file can be opened any more.

    Those are closed first that have sent least, since a client that floods a server rarely sends much on each.

    Args:
        port: The port of this process.
        most: The largest number of connections. It is lowered to half of the descriptors that the process may have. One
            address may have half of it.
    """

    def __init__(self, port: int, most: int) -> None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._port = port
        self._most = most if soft == resource.RLIM_INFINITY else min(most, max(2, soft // 2))
        self._of_one = max(1, self._most // 2)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="connections", daemon=True)

    def start(self) -> None:
        """Look from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Look no longer."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def look(self) -> int:
        """Close connections of which there are too many, and return how many were closed."""
        # Counting descriptors costs much less than asking each what it is.
        descriptors = _descriptors()
        if isinstance(descriptors, list) and len(descriptors) <= self._of_one:
            return 0
        found: dict[str, list[tuple[int, str]]] = {}
        for connection in accepted_on(self._port):
            with contextlib.suppress(OSError):
                address = address_of(connection)
                found.setdefault(host_of(address), []).append((_received(connection), address))
        doomed: set[str] = set()
        for each in found.values():
            doomed |= {address for _, address in sorted(each)[: max(0, len(each) - self._of_one)]}
        left = sorted(each for many in found.values() for each in many if each[1] not in doomed)
        doomed |= {address for _, address in left[: max(0, len(left) - self._most)]}
        if doomed:
            for connection in accepted_on(self._port):
                with contextlib.suppress(OSError):
                    if address_of(connection) in doomed:
                        connection.shutdown(socket.SHUT_RDWR)
            logger.warning("connections closed: too many", closed=len(doomed), allowed=self._most)
        return len(doomed)

    def _run(self) -> None:
        while not self._stopped.wait(_LOOK_S):
            self.look()


def raise_descriptor_limit() -> None:
    """Let this process open as many files and connections as the system permits it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # Some systems permit fewer than they say.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _received(connection: socket.socket) -> int:
    """Return how many bytes a connection has received, as Linux counts them; 0 where it is not known."""
    if not hasattr(socket, "TCP_INFO"):
        return 0
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RECEIVED_AT + 8)
    return int.from_bytes(info[_RECEIVED_AT:], sys.byteorder) if len(info) == _RECEIVED_AT + 8 else 0
