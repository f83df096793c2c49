"""A connection to one Fluss server, which threads share."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey, ServedApis
from fluss_tiering.storage.fluss.rpc.call import Call, ServerAddress, ServerKind
from fluss_tiering.storage.fluss.rpc.connection_steps import (
    CLOSED,
    MAX_FIRST_FRAME_BYTES,
    MAX_FRAME_BYTES,
    PREFIX_BYTES,
    Credentials,
    RequestCorrelator,
    api_versions,
    authenticate,
    decode_response,
    encode_request,
    frame_length,
    lost,
    no_greeting,
    silent,
    unreachable,
)

ResultT = TypeVar("ResultT")

_STALL_S: Final = 30.0
"""A peer that takes or sends nothing for this long in the middle of a frame counts as gone."""


class FlussConnection:
    """One socket on which many threads send requests. A thread of the connection reads the answers, in any order.

    Raises:
        FlussConnectionError: The server is not there, hung up, or was silent for `timeout` seconds.
        FlussTieringError: CORRUPT_DATA if the server speaks another protocol.
        FlussServerError: The server refused the credentials.
    """

    def __init__(
        self, address: ServerAddress, *, credentials: Credentials | None = None, timeout: float = 10.0
    ) -> None:
        """Connect and do the handshake within `timeout` seconds."""
        self._name = str(address)
        self._socket = _connect(address, timeout)
        try:
            self.served = self._shake_hands(credentials, timeout)
        except BaseException:
            self._socket.close()
            raise
        self._socket.settimeout(_STALL_S)
        self._correlator = RequestCorrelator(self._name, self.served)
        self._sending = threading.Lock()
        self._ended: str | None = None
        threading.Thread(target=self._read, name=f"fluss-{self._name}", daemon=True).start()

    @property
    def usable(self) -> bool:
        """Whether the connection has not ended."""
        return self._ended is None

    def call(self, call: Call[Any, ResultT], timeout: float) -> ResultT:
        """Send a call and return its result. An answer that takes longer than `timeout` seconds ends the connection.

        Raises:
            FlussTieringError: UNSUPPORTED_VERSION, before anything is sent, if the server does not serve the call; the
                errors that the call finds in its answer.
            FlussServerError: The server answered with an error.
            FlussConnectionError: The connection broke, or the server was too slow.
        """
        answered: Future[memoryview] = Future()
        frame = self._correlator.register(call, answered)
        self._send(frame)
        try:
            message = answered.result(timeout)
        except TimeoutError as error:
            # A server that answers late counts as gone, so that other threads do not wait for it any longer.
            failure = silent(self._name, call.api.name, timeout)
            self._end(failure.message)
            raise failure from error
        return call.answer(message)

    def close(self) -> None:
        """End the connection. Calls in flight fail."""
        self._end(CLOSED)

    def _shake_hands(self, credentials: Credentials | None, timeout: float) -> ServedApis:
        """Ask which calls the server serves, and tell it who calls.

        Raises:
            FlussConnectionError: The server hung up, or did not answer in time.
            FlussTieringError: UNSUPPORTED_VERSION if there are credentials but the server does not take any.
            FlussServerError: The server refused the credentials (AUTHENTICATE_EXCEPTION).
        """
        deadline = time.monotonic() + timeout
        try:
            served: ServedApis = self._ask_first(api_versions(ServerKind.ANY), deadline)
            if credentials is not None:
                served.version_of(ApiKey.AUTHENTICATE, self._name)
                self._ask_first(authenticate(credentials), deadline)
        except TimeoutError as error:
            raise no_greeting(self._name, f"silence for {timeout:.3g} s") from error
        except (OSError, EOFError) as error:
            raise no_greeting(self._name, str(error) or "it hung up") from error
        return served

    def _ask_first(self, call: Call[Any, ResultT], deadline: float) -> ResultT:
        """Send a request of the handshake, in the first version of its call."""
        self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
        self._socket.sendall(encode_request(call.api, call.api.versions[0], 0, call.request.SerializeToString()))
        response = decode_response(self._frame(deadline, MAX_FIRST_FRAME_BYTES), self._name)
        if response.error is not None:
            raise response.error
        return call.answer(response.message)

    def _send(self, frame: bytes) -> None:
        try:
            with self._sending:
                if self._ended is not None:
                    # Nothing was sent, so the request cannot have done its work.
                    raise unreachable(self._name, self._ended)
                self._socket.sendall(frame)
        except OSError as error:
            self._end(str(error))
            raise lost(self._name, str(error)) from error

    def _read(self) -> None:
        why = "it hung up"
        try:
            while True:
                self._correlator.deliver(decode_response(self._frame(None, MAX_FRAME_BYTES), self._name))
        except (OSError, EOFError, FlussTieringError) as error:
            why = str(error) or why
        finally:
            self._end(why)
            # Only the reading thread closes the socket: if another one did, the descriptor could belong to another
            # connection before this thread reads from it again.
            self._socket.close()

    def _frame(self, deadline: float | None, limit: int) -> bytearray:
        """Return the next frame without its length. Without a deadline, wait for the frame's start without limit."""
        prefix = self._exactly(PREFIX_BYTES, deadline, patient=deadline is None)
        return self._exactly(frame_length(prefix, self._name, limit), deadline)

    def _exactly(self, size: int, deadline: float | None, *, patient: bool = False) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        received = 0
        while received < size:
            if deadline is not None:
                self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                count = self._socket.recv_into(view[received:])
            except TimeoutError:
                if patient and received == 0 and self._ended is None:
                    continue
                raise
            if count == 0:
                raise EOFError("it hung up")
            received += count
        return data

    def _end(self, why: str) -> None:
        if self._ended is None:
            self._ended = why
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._correlator.fail_all(self._ended)


def _connect(address: ServerAddress, timeout: float) -> socket.socket:
    try:
        connected = socket.create_connection((address.host, address.port), timeout)
    except (OSError, UnicodeError) as error:
        raise unreachable(str(address), error) from error
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connected
