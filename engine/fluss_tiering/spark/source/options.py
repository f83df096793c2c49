"""The options of `format("fluss")`, and its errors as Spark's users see them: one line, and no traceback."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from fluss_tiering.client import DEFAULT_TARGET
from fluss_tiering.client.security import (
    TLS_CA_VARIABLE,
    TLS_CERT_VARIABLE,
    TLS_KEY_VARIABLE,
    TLS_VARIABLE,
    TOKEN_FILE_VARIABLE,
    TOKEN_VARIABLE,
    ClientSecurity,
)
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.misspelled import meant
from fluss_tiering.model.units import parse_memory_size

SERVER_VARIABLE: Final = "FLUSS_TIERING_SERVER"
DEFAULT_MAX_PARTITION_BYTES: Final = 64 << 20
_VARIABLES: Final = {
    "tokenfile": TOKEN_FILE_VARIABLE,
    "tls": TLS_VARIABLE,
    "tlsca": TLS_CA_VARIABLE,
    "tlscert": TLS_CERT_VARIABLE,
    "tlskey": TLS_KEY_VARIABLE,
}
"""The environment variables that options stand for, by the option in lower case."""
_NAMES: Final = (
    "server",
    "table",
    "maxPartitionBytes",
    "tokenFile",
    "tls",
    "tlsCa",
    "tlsCert",
    "tlsKey",
)
_OF_CREDENTIALS: Final = ("token", "tls")
"""How the names of options for credentials begin. One that is ignored could leave a connection without protection."""
_HIDE_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"
"""The environment variable that pyspark reads when it reports an error to the JVM, before the process ends."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The table to read, and how.

    Attributes:
        server: The address of the tiering server, "host:port" (option `server`). The default is `FLUSS_TIERING_SERVER`
            in the environment of Spark's driver, or else this machine.
        table: The table as "database.table", or a system table (option `table`).
        max_partition_bytes: How much of a log table's bucket one partition holds (option `maxPartitionBytes`).
        security: The credentials for the server, from files on the driver's machine (options `tokenFile`, `tlsCa`,
            `tlsCert` and `tlsKey`, and `tls` for the authorities of the system). What no option names is taken from the
            environment of Spark's driver. A token is never an option, since Spark shows options.
    """

    server: str
    table: str
    max_partition_bytes: int = DEFAULT_MAX_PARTITION_BYTES
    security: ClientSecurity = field(default_factory=ClientSecurity)

    @classmethod
    def read(cls, options: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> SourceOptions:
        """Read Spark's options, whose keys may be in upper or lower case.

        Raises:
            FlussTieringError: INVALID_REQUEST if an option is missing, has a wrong value, or has a name that is nearly
                one of these. Other options are ignored, since Spark passes on options of its own.
        """
        given = {key.lower(): value for key, value in options.items()}
        _check_names(options)
        table = given.get("table")
        if not table:
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                'option "table" is missing: expected DATABASE.TABLE, as in .option("table", "fluss.orders")',
            )
        return cls(
            server=given.get("server") or environment.get(SERVER_VARIABLE) or DEFAULT_TARGET,
            table=table,
            max_partition_bytes=_size("maxPartitionBytes", given, DEFAULT_MAX_PARTITION_BYTES),
            security=ClientSecurity.from_environment({**environment, **_variables(given)}),
        )


def _check_names(options: Mapping[str, str]) -> None:
    known = {each.lower() for each in _NAMES}
    for name in options:
        if name.lower() == "token":
            raise FlussTieringError(
                ErrorCode.INVALID_REQUEST,
                'option "token" would show the token in Spark\'s pages and logs: name a file that holds it with the '
                f'option "tokenFile", or set {TOKEN_VARIABLE} in the environment of the driver',
            )
        if name.lower() in known:
            continue
        near = meant(name, _NAMES)
        if near is not None or name.lower().startswith(_OF_CREDENTIALS):
            expected = f'"{near}"' if near else f"one of {', '.join(_NAMES)}"
            raise FlussTieringError(ErrorCode.INVALID_REQUEST, f'"{name}" is no option: expected {expected}')


def _variables(given: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that options stand for."""
    found = {variable: given[option] for option, variable in _VARIABLES.items() if option in given}
    if TOKEN_FILE_VARIABLE in found:
        # The option goes before a token in the environment.
        found[TOKEN_VARIABLE] = ""
    return found


def _size(name: str, given: Mapping[str, str], default: int) -> int:
    text = given.get(name.lower())
    if text is None:
        return default
    try:
        size = parse_memory_size(text)
    except FlussTieringError as error:
        raise FlussTieringError(error.code, f'option "{name}": {error.message}') from None
    if not size:
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST, f'option "{name}" is {text!r}: expected a size above 0, for example 64mb'
        )
    return size


class FlussSourceError(Exception):
    """An error with the text `[CODE] what was wrong: what was expected; what to do`."""


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turn each FlussTieringError of the `with` block into a FlussSourceError."""
    try:
        yield
    except FlussTieringError as error:
        os.environ[_HIDE_TRACEBACK] = "1"
        raise FlussSourceError(f"[{error.code}] {error.message}") from None
