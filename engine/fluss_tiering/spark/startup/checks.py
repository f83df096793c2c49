"""What is checked before Spark starts, which takes long to miss it: the master, and the rights of the caller."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from fluss_tiering.model.errors import ErrorCode, FlussTieringError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fluss_tiering.client import TieringClient

_CONNECT: Final = "sc://"
_OF_CONNECT: Final = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")
"""The variables by which pyspark makes sessions of Spark Connect. pyspark itself sets the second one."""
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


def require_own_jvm(master: str, environment: Mapping[str, str]) -> None:
    """Check that the session that is about to start is not one of Spark Connect, which has no JVM in this process.

    Raises:
        FlussTieringError: INVALID_REQUEST if it would be one.
    """
    if master.startswith(_CONNECT):
        raise _connect(f"the master is {master}")
    for name in _OF_CONNECT:
        if environment.get(name):
            raise _connect(f"{name} is set")


def require_classic(spark: SparkSession) -> None:
    """Check that a session is not one of Spark Connect.

    Raises:
        FlussTieringError: INVALID_REQUEST if it is one.
    """
    if type(spark).__module__.startswith("pyspark.sql.connect."):
        raise _connect("the Spark session is one of Spark Connect")


def _connect(why: str) -> FlussTieringError:
    return FlussTieringError(
        ErrorCode.INVALID_REQUEST,
        f"{why}, but rounds and the commands for lake tables do not run on Spark Connect: expected a process that "
        "starts Spark itself; give --master local[*], spark://HOST:PORT or yarn, unset SPARK_REMOTE, and have no "
        "session of Spark Connect in this process",
    )


def check_may_tier(client: TieringClient) -> None:
    """Check that the caller may change lake tables. A server that does not ask who calls lets everybody do so.

    Raises:
        FlussTieringError: AUTHENTICATION or AUTHORIZATION if the caller may not; UNAVAILABLE if the server cannot
            be reached.
    """
    # A heartbeat about no round changes nothing, and takes the role that rounds take.
    client.heartbeat()
