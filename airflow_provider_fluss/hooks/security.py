"""The credentials that a connection of type `fluss` holds: what clients and Spark's drivers get of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from airflow_provider_fluss.missing_connection import UnusableConnectionError
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from fluss_tiering.client.security import ClientSecurity
    from fluss_tiering.client.target import Target

_TOKEN: Final = "FLUSS_TIERING_TOKEN"  # noqa: S105 - the name of a variable
_PATHS: Final = {
    "token_file": "FLUSS_TIERING_TOKEN_FILE",
    "tls_ca": "FLUSS_TIERING_TLS_CA",
    "tls_cert": "FLUSS_TIERING_TLS_CERT",
    "tls_key": "FLUSS_TIERING_TLS_KEY",
}
"""The fields of the extra that hold paths, and the variables of the client that mean the same."""
_DRIVER_TOKEN_FILE: Final = "driver_token_file"  # noqa: S105 - the name of a field
_DRIVER_HAS_CREDENTIALS: Final = "driver_has_credentials"
DRIVER_SERVER: Final = "driver_server"
"""The field of the extra with the address of the server for a driver on another machine."""
_FLAGS: Final = {"tls": "FLUSS_TIERING_TLS", "allow_insecure": "FLUSS_TIERING_ALLOW_INSECURE"}


@dataclass(frozen=True, slots=True)
class ConnectionSecurity:
    """The credentials of a connection.

    Attributes:
        conn_id: The id of the connection.
        token: The token that is its password; None for none. It is never printed.
        paths: The paths in its extra, by the names of their fields.
        tls: Whether calls are encrypted.
        allow_insecure: Whether a token may be sent to other machines without encryption.
    """

    conn_id: str
    token: str | None = field(repr=False)
    paths: Mapping[str, str]
    tls: bool
    allow_insecure: bool

    @classmethod
    def of(cls, connection: Connection) -> Self | None:
        """Return the credentials of a connection; None if it has none, so that those of the environment count.

        Raises:
            UnusableConnectionError: A field is wrong. The message names it.
        """
        extra = extra_of(connection)
        wrong = _Wrong(connection.conn_id)
        _check_names(wrong, extra)
        paths = {name: path for name in _PATHS if (path := _path(wrong, name, extra.get(name)))}
        flags = {name: _flag(wrong, name, extra.get(name)) for name in _FLAGS}
        token = connection.password or None
        if not token and not paths and not any(flags.values()):
            return None
        if token and "token_file" in paths:
            raise wrong("a password and token_file in its extra", "a token in one of them")
        certificates = [name for name in paths if name != "token_file"]
        if certificates and flags["tls"] is False:
            raise wrong(f"tls false and {', '.join(certificates)} in its extra", "tls true, or no certificates")
        if ("tls_cert" in paths) != ("tls_key" in paths):
            raise wrong("only one of tls_cert and tls_key in its extra", "both or none")
        tls = bool(certificates) or bool(flags["tls"])
        return cls(connection.conn_id, token, paths, tls=tls, allow_insecure=bool(flags["allow_insecure"]))

    def client(self, target: Target) -> ClientSecurity:
        """Return the credentials of a client of the server.

        Raises:
            UnusableConnectionError: The password is no token, a file cannot be read, or the token would be sent to
                another machine without encryption. The message names the field.
        """
        from fluss_tiering.client.security import ClientSecurity  # noqa: PLC0415 - not needed to parse a DAG

        wrong = _Wrong(self.conn_id)
        try:
            security = ClientSecurity.from_environment({**self.environment(), _TOKEN: self.token or ""})
            token = security.read_token()
        except FlussTieringError as error:
            raise wrong.from_client_error(error) from None
        if token and not (self.tls or self.allow_insecure or target.is_loopback):
            raise wrong(
                f"a token, but tls is not set in its extra: the token would be sent to {target.address} for everybody "
                "to read",
                "tls true, or allow_insecure true",
            )
        return security

    def environment(self) -> dict[str, str]:
        """Return the variables that give a client these credentials, except the token of the password.

        Those that are not given are empty, so that a client does not mix them with other ones of its environment.
        """
        flags = {"tls": self.tls, "allow_insecure": self.allow_insecure}
        return {
            _TOKEN: "",
            **{variable: self.paths.get(name, "") for name, variable in _PATHS.items()},
            **{variable: "true" if flags[name] else "" for name, variable in _FLAGS.items()},
        }

    def driver_environment(self, folder: Path) -> dict[str, str]:
        """Return the variables for a driver on this machine. The token of the password goes into a file.

        The processes of Spark inherit the environment of `spark-submit`, so it must not hold the token.

        Args:
            folder: A folder that only this user can read, and that is as long there as the driver.
        """
        if self.token is None:
            return self.environment()
        file = folder / "token"
        file.touch(mode=0o600)
        file.write_text(self.token)
        return {**self.environment(), _PATHS["token_file"]: str(file)}


def remote_environment(connection: Connection) -> dict[str, str]:
    """Return the variables for a driver on another machine, which are the paths and flags that are set.

    There are none if the platform of the driver sets them, for example from a secret.

    Raises:
        UnusableConnectionError: A field is wrong, or the token is in the password alone, from which it could reach such
            a driver only where others can read it.
    """
    wrong, extra = _Wrong(connection.conn_id), extra_of(connection)
    security = ConnectionSecurity.of(connection)
    token_file = _path(wrong, _DRIVER_TOKEN_FILE, extra.get(_DRIVER_TOKEN_FILE))
    if _flag(wrong, _DRIVER_HAS_CREDENTIALS, extra.get(_DRIVER_HAS_CREDENTIALS)):
        return {}
    if security is not None and security.token is not None and token_file is None:
        raise UnusableConnectionError(
            f"Connection {connection.conn_id!r} has a token as its password, which cannot be given to a driver on the "
            "cluster: everybody who sees Spark's settings could read it. Add driver_token_file to its extra, with a "
            "file with a token that the driver's machine has, or driver_has_credentials, if its platform sets one."
        )
    variables = {} if security is None else security.environment()
    if token_file is not None:
        variables[_PATHS["token_file"]] = token_file
    return {name: value for name, value in variables.items() if value}


def extra_of(connection: Connection) -> Mapping[str, Any]:
    """Return the extra of a connection.

    Raises:
        UnusableConnectionError: It is no JSON object.
    """
    extra: object = connection.extra_dejson
    if not isinstance(extra, Mapping):
        raise UnusableConnectionError(
            f"Connection {connection.conn_id!r} has an extra that is no JSON object: expected one such as "
            f'{{"timeout": 30}}, or nothing.'
        )
    return extra


def trouble(error: FlussTieringError) -> str:
    """Return what the Test button tells of an error: whether the certificates, the identity or a role is wrong."""
    from fluss_tiering.client.failed_call import CLOSED_AT_ONCE  # noqa: PLC0415 - not needed to parse a DAG

    if error.code is ErrorCode.AUTHENTICATION:
        return f"The server does not know who calls: {error.message}"
    if error.code is ErrorCode.AUTHORIZATION:
        return f"The identity lacks a role: {error.message}"
    if "TLS handshake" in error.message:
        return f"The TLS handshake failed: {error.message}"
    if CLOSED_AT_ONCE in error.message:
        return (
            "The server closed the connection. Perhaps it expects TLS (tls) or a client certificate of its authority "
            f"(tls_cert and tls_key): {error.message}"
        )
    return str(error)


class _Wrong:
    """Makes the errors about the fields of a connection."""

    def __init__(self, conn_id: str) -> None:
        self._conn_id = conn_id

    def __call__(self, has: str, expected: str) -> UnusableConnectionError:
        return UnusableConnectionError(f"Connection {self._conn_id!r} has {has}: expected {expected}.")

    def from_client_error(self, error: FlussTieringError) -> UnusableConnectionError:
        """Return what the client said of variables in the words of the connection."""
        from fluss_tiering.client.security import named  # noqa: PLC0415 - not needed to parse a DAG

        for name, variable in _PATHS.items():
            if error.message.startswith(f"{named(variable)}: "):
                rest = error.message.removeprefix(f"{named(variable)}: ")
                return self(f"a wrong {name} in its extra ({rest})", "a file in PEM on each machine that runs tasks")
        if error.message.startswith("the token is "):
            return self("a password that is no token", "printable ASCII characters without spaces")
        expected = "a file with the token alone on each machine that runs tasks"
        return self(f"a wrong token_file in its extra ({error.message})", expected)


def _check_names(wrong: _Wrong, extra: Mapping[str, Any]) -> None:
    """Refuse a key that is nearly one of ours. Without it, a connection would lack what the key was meant to give."""
    from fluss_tiering.model.misspelled import meant  # noqa: PLC0415 - not needed to parse a DAG

    known = {*_PATHS, *_FLAGS, _DRIVER_TOKEN_FILE, _DRIVER_HAS_CREDENTIALS, DRIVER_SERVER, "timeout"}
    for name in extra:
        if name not in known and (near := meant(name, known)) is not None:
            raise wrong(f"{name!r} in its extra", f"{near!r}")


def _path(wrong: _Wrong, name: str, value: object) -> str | None:
    if value in (None, ""):
        return None
    if not isinstance(value, str) or not Path(value).is_absolute() or not value.isprintable():
        raise wrong(f"{name} {value!r} in its extra", "the absolute path of a file")
    return value


def _flag(wrong: _Wrong, name: str, value: object) -> bool | None:
    """Return the flag; None if it is not given. In a URI it is a text."""
    if value in (None, ""):
        return None
    text = value.lower() if isinstance(value, str) else value
    if text in ("true", "false"):
        return text == "true"
    if not isinstance(value, bool):
        raise wrong(f"{name} {value!r} in its extra", "true or false")
    return value
