"""How a cluster is reached: the server's link to it, and the secrets for reading it.

The driver hands the secrets to the executors, and no text shows them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from fluss_tiering.storage.fluss.rpc.connection_steps import Credentials

USERNAME_VARIABLE: Final = "FLUSS_TIERING_FLUSS_USERNAME"
PASSWORD_VARIABLE: Final = "FLUSS_TIERING_FLUSS_PASSWORD"  # noqa: S105 - the name of a variable
_S3_VARIABLES: Final = {
    "access_key": ("AWS_ACCESS_KEY_ID",),
    "secret_key": ("AWS_SECRET_ACCESS_KEY",),
    "session_token": ("AWS_SESSION_TOKEN",),
    "region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
    "endpoint_override": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
}
"""Argument of pyarrow's S3FileSystem -> the AWS tools' variables for it, of which the first that is set counts."""

_hidden_password: str | None = None
"""The password that `hide_password` took out of the environment."""


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """The secrets for reading a cluster and its remote folder. `repr` does not show them.

    Attributes:
        credentials: The user and the password for a listener that demands SASL.
        s3: The arguments of pyarrow's S3FileSystem for a remote folder in S3. Without them each machine uses its own.
    """

    credentials: Credentials | None = None
    s3: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Read the secrets from this process's environment.

        Raises:
            FlussTieringError: INVALID_REQUEST if there is a user without a password, or a password without a user.
        """
        username, password = environment.get(USERNAME_VARIABLE), environment.get(PASSWORD_VARIABLE)
        if environment is os.environ and username is not None and password is None:
            password = _hidden_password
        if (username is None) != (password is None):
            given, missing = USERNAME_VARIABLE, PASSWORD_VARIABLE
            if username is None:
                given, missing = missing, given
            raise FlussTieringError(ErrorCode.INVALID_REQUEST, f"{given} is set and {missing} is not: expected both")
        credentials = None if username is None or password is None else Credentials(username, password)
        return cls(credentials, tuple(s3_from_environment(environment).items()))


def hide_password() -> None:
    """Take the password out of this process's environment, so that processes which it starts from now on lack it.

    This process goes on with it, and hands it to executors with the job.
    """
    global _hidden_password  # noqa: PLW0603 - one for the process, as its environment
    _hidden_password = os.environ.pop(PASSWORD_VARIABLE, None) or _hidden_password


def s3_from_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the arguments of pyarrow's S3FileSystem that the AWS tools' variables give."""
    found = {
        argument: next((environment[name] for name in names if environment.get(name)), None)
        for argument, names in _S3_VARIABLES.items()
    }
    s3 = {argument: value for argument, value in found.items() if value is not None}
    if "://" in (endpoint := s3.get("endpoint_override", "")):
        s3["scheme"], _, s3["endpoint_override"] = endpoint.partition("://")
    return s3


@dataclass(frozen=True, slots=True)
class ClusterLink:
    """The addresses of a cluster and a client for it.

    Attributes:
        bootstrap_servers: HOST:PORT of some servers, separated by commas.
        credentials: The user and the password for a listener that demands SASL.
        client: The client that all threads of the server share.
    """

    bootstrap_servers: str
    credentials: Credentials | None
    client: FlussClient
