"""Looks for Spark's master before Spark itself does, which takes a minute and hundreds of lines to miss it."""

from __future__ import annotations

import socket
from typing import Final

from fluss_tiering.model.errors import ErrorCode, FlussTieringError

_STANDALONE: Final = "spark://"
_DEFAULT_PORT: Final = 7077
_CONNECT_S: Final = 5.0


def check_master(master: str) -> None:
    """Check that a standalone cluster's master can be reached. Any other master is left to Spark.

    Raises:
        FlussTieringError: UNAVAILABLE if none of the addresses can be reached; INVALID_REQUEST if one is no address.
    """
    if not master.startswith(_STANDALONE):
        return
    reasons = []
    for address in master.removeprefix(_STANDALONE).split(","):
        host, separator, port = address.rpartition(":")
        if not separator:
            host, port = address, str(_DEFAULT_PORT)
        if not host or not port.isdecimal():
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST, f"the master {master!r} is no address: expected spark://HOST:PORT"
            )
        try:
            with socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S):
                return
        except (OSError, OverflowError) as error:
            reasons.append(f"{host}:{port}: {getattr(error, 'strerror', None) or error}")
    raise FlussTieringError(
        ErrorCode.UNAVAILABLE,
        f"Spark's master {master} cannot be reached ({'; '.join(reasons)}): expected a running master of a standalone "
        "cluster; check its address",
    )
