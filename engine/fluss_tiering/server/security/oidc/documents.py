"""Reads JSON documents over HTTP, with an end to the time that this may take."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

from fluss_tiering.model.errors import ErrorCode, FlussTieringError

MAX_BYTES: Final = 1 << 20
_STEP_S: Final = 5.0
"""The longest time without a byte, in seconds."""

T = TypeVar("T")
GetJson = Callable[[str], dict[str, Any]]


async def read_documents(read: Callable[[GetJson], T], seconds: float) -> T:
    """Read documents in another thread.

    Args:
        read: Gets a function that returns the document at a URL, and returns what it makes of the documents.
        seconds: The time for all of it. An issuer that sends a byte now and then does not keep the thread.

    Raises:
        FlussTieringError: UNAVAILABLE if a document cannot be read in time, and the errors of `read`.
    """
    connections = _Connections()
    try:
        async with asyncio.timeout(seconds):
            return await asyncio.to_thread(read, connections.get_json)
    except TimeoutError:
        raise FlussTieringError(ErrorCode.UNAVAILABLE, f"there was no whole answer within {seconds:g} s") from None
    finally:
        connections.close()


class _Connections:
    """The connections of one reading. Closing them ends the thread that waits for their answers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._is_closed = False
        # The proxies of the environment are used, as with other programs.
        self._opener = urllib.request.build_opener(_Http(self), _Https(self), _NoRedirects())

    def get_json(self, url: str) -> dict[str, Any]:
        """Return the object at a URL. Raises FlussTieringError with UNAVAILABLE if there is none."""
        request = urllib.request.Request(url, headers={"Accept": "application/json"})  # noqa: S310 - of checked_url
        try:
            with self._opener.open(request, timeout=_STEP_S) as answer:
                content = answer.read(MAX_BYTES + 1)
        except urllib.error.HTTPError as error:
            with error:
                raise _unavailable(url, f"answered {error.code} {error.reason}{_target_of(error)}") from error
        except (OSError, http.client.HTTPException) as error:
            # urllib puts the reason into an error of its own.
            reason = getattr(error, "reason", None) or error
            raise _unavailable(url, f"gave no answer: {reason or type(reason).__name__}") from error
        if len(content) > MAX_BYTES:
            raise _unavailable(url, f"answered more than {MAX_BYTES >> 20} MB: expected a small JSON object")
        try:
            found = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise _unavailable(url, "answered no JSON: expected a JSON object") from error
        if not isinstance(found, dict):
            raise _unavailable(url, "answered JSON of another kind: expected a JSON object")
        return found

    def opened(self, connection: socket.socket) -> None:
        with self._lock:
            self._sockets.append(connection)
        if self._is_closed:
            self.close()

    def close(self) -> None:
        self._is_closed = True
        with self._lock:
            for each in self._sockets:
                # It may be closed already. The method of TLS sockets would change them under the other thread's feet.
                with suppress(OSError):
                    socket.socket.shutdown(each, socket.SHUT_RDWR)


class _Http(urllib.request.HTTPHandler):
    def __init__(self, connections: _Connections) -> None:
        super().__init__()

        class Connection(http.client.HTTPConnection):
            def connect(self) -> None:
                super().connect()
                connections.opened(self.sock)

        self._kind = Connection

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._kind, req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, connections: _Connections) -> None:
        super().__init__()

        class Connection(http.client.HTTPSConnection):
            def connect(self) -> None:
                super().connect()
                connections.opened(self.sock)

        self._kind = Connection
        self._trusted = ssl.create_default_context()

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._kind, req, context=self._trusted)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirects, which might lead away from the issuer, or from https."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _target_of(error: urllib.error.HTTPError) -> str:
    target = error.headers.get("Location")
    return "" if target is None else f", a redirect to {target!r}: expected the address itself, no redirect is followed"


def _unavailable(url: str, what: str) -> FlussTieringError:
    return FlussTieringError(ErrorCode.UNAVAILABLE, f"{url} {what}")
