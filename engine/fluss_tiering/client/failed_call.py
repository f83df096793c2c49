"""The errors that failed calls of gRPC stand for, with what to do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

import grpc

from fluss_tiering.client.channel import NOT_CONNECTED
from fluss_tiering.client.target import DEFAULT_PORT
from fluss_tiering.model.errors import ErrorCode, FlussTieringError, ThrottledError
from fluss_tiering.version import __version__
from fluss_tiering.wire.errors import code_from_metadata, code_from_status, retry_after_from_metadata

_TOO_LARGE: Final = "larger than max"
"""A part of gRPC's text for a message that is too large. Such a call has the status of a server that throttles."""

_REQUEST_TOO_LARGE: Final = "SERVER: Received"
"""The beginning of gRPC's text if the request was too large. Otherwise the answer was."""

_NOT_GRPC: Final = ("Failed parsing HTTP/2", "Trying to connect an http1.x server")
"""Parts of gRPC's texts for a program that accepts connections and does not speak gRPC."""

_TLS_FAILED: Final = (
    "Tls handshake failed",
    "Failed to create security handshaker",
    "Hostname Verification Check failed",
)
"""Parts of gRPC's texts for certificates that do not fit, or for a server without TLS."""

_OTHER_AUTHORITY: Final = (
    "its certificate is not of an authority that this client trusts: name its authority with --tls-ca, with "
    "FLUSS_TIERING_TLS_CA or in the field tls_ca of an Airflow connection"
)
_TLS_CAUSES: Final = {
    "Hostname Verification Check failed": (
        "its certificate is for another name: call the server by a name that is in its certificate, or give it a "
        "certificate for this one"
    ),
    "certificate has expired": "its certificate or that of its authority has expired: renew it",
    "certificate is not yet valid": "its certificate is not valid yet: compare the clocks of both machines",
    "unable to get local issuer certificate": _OTHER_AUTHORITY,
    "certificate signature failure": _OTHER_AUTHORITY,
    "self signed certificate": _OTHER_AUTHORITY,
    "self-signed certificate": _OTHER_AUTHORITY,
    "WRONG_VERSION_NUMBER": (
        "it does not use TLS: start it with tls-cert-file and tls-key-file, or call it without --tls and certificates"
    ),
}
"""Parts of gRPC's texts for a TLS handshake that failed, and what each one means."""

_TLS_UNKNOWN: Final = (
    "check that the server uses TLS, that its certificate is of the authority that this client trusts, and that a "
    "client certificate has its own key"
)

_PING_TIMEOUT: Final = "ping timeout"
"""A part of gRPC's texts for a connection on which nothing is answered any more."""

_CLOSED: Final = ("Socket closed", "Connection reset by peer", "Broken pipe")
"""Parts of gRPC's texts for a server that ended a connection. It says no more to a client that lacks TLS or a
certificate."""

_CLOSED_HINT: Final = (
    "perhaps it expects TLS (--tls and --tls-ca, or FLUSS_TIERING_TLS and FLUSS_TIERING_TLS_CA), or a client "
    "certificate of its authority that has not expired (--tls-cert and --tls-key, or FLUSS_TIERING_TLS_CERT and "
    "FLUSS_TIERING_TLS_KEY); an Airflow connection has fields of these names"
)
CLOSED_AT_ONCE: Final = "closed the connection at once"
"""A part of the message for a server that ended a connection before the first call."""


class FailedCall(Protocol):
    """The methods that the errors of blocking calls and of asyncio calls have in common."""

    def code(self) -> grpc.StatusCode:
        """Return the status."""
        ...

    def details(self) -> str | None:
        """Return the text of the status."""
        ...

    def trailing_metadata(self) -> Iterable[tuple[str, str | bytes]] | None:
        """Return the metadata that follows the answer."""
        ...


def error_of(call: FailedCall, target: str, timeout: float) -> FlussTieringError:
    """Return the error that a failed call stands for.

    Args:
        call: The error of gRPC.
        target: The address of the server, and how it is called besides.
        timeout: The deadline of the call, in seconds.
    """
    status, details = call.code(), call.details() or "no details"
    code = code_from_metadata(call.trailing_metadata())
    if code is not None:
        wait_ms = retry_after_from_metadata(call.trailing_metadata())
        return FlussTieringError(code, details) if wait_ms is None else ThrottledError(details, wait_ms)
    if status is grpc.StatusCode.UNAVAILABLE and any(text in details for text in _NOT_GRPC):
        message = (
            f"cannot reach the tiering server at {target}: something else than a tiering server answers at this port, "
            f"perhaps the metrics port: use the port of the server, which is usually {DEFAULT_PORT} ({details})"
        )
    elif status is grpc.StatusCode.UNAVAILABLE:
        message = _unavailable(target, details)
    elif status in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED):
        # A call whose error is read here was cancelled by its deadline and by nothing else.
        return FlussTieringError(
            ErrorCode.UNAVAILABLE,
            f"the tiering server at {target} did not answer within {timeout:g} s: it may be overloaded or stopped; "
            "look at its log and try again",
        )
    elif status is grpc.StatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE in details:
        less = (
            "send less at once; a single row must fit into a message"
            if details.startswith(_REQUEST_TOO_LARGE)
            else "ask for less at once, for example for one table by its name"
        )
        message = (
            f"a message to or from the tiering server at {target} is too large ({details}): {less}, or start the "
            "server with a larger max.message.bytes"
        )
    elif status is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return FlussTieringError(
            ErrorCode.UNAVAILABLE, f"the tiering server at {target} has too much to do ({details}): try again later"
        )
    elif status is grpc.StatusCode.UNIMPLEMENTED:
        message = (
            f"{target} does not serve this call: it is not a tiering server, or it is older than this "
            f"client, which is fluss-tiering {__version__} ({details})"
        )
    else:
        message = f"the tiering server at {target} failed with {status.name}: {details}"
    return FlussTieringError(code_from_status(status), message)


def tls_cause(details: str, other_authority: str = _OTHER_AUTHORITY) -> str | None:
    """Return why a TLS handshake failed and what to do; None if no handshake failed.

    Args:
        details: gRPC's text for a call without an answer.
        other_authority: What to say of a certificate whose authority is not trusted.
    """
    if not any(text in details for text in _TLS_FAILED):
        return None
    cause = next((cause for text, cause in _TLS_CAUSES.items() if text in details), _TLS_UNKNOWN)
    return other_authority if cause is _OTHER_AUTHORITY else cause


def _unavailable(target: str, details: str) -> str:
    if (cause := tls_cause(details)) is not None:
        # gRPC ends with the state of a check that it has not made.
        return f"the TLS handshake with the tiering server at {target} failed: {cause} ({details.removesuffix(': OK')})"
    if _PING_TIMEOUT in details:
        return (
            f"the tiering server at {target} does not answer any more ({details}): it hangs, or the network to it is "
            "cut; look at its log and at its machine"
        )
    if NOT_CONNECTED in details and any(text in details for text in _CLOSED):
        return f"the tiering server at {target} {CLOSED_AT_ONCE}: {_CLOSED_HINT} ({details})"
    return (
        f"cannot reach the tiering server at {target}: {details}; "
        "start it with `fluss-tiering serve` or check the address"
    )
