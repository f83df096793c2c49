"""The file systems that executors write to, opened with the properties of Iceberg's own FileIO.

The properties have Iceberg's names: the keys, tokens, roles and endpoints of the catalog, those that a REST catalog has
vended for a table, and those of the Spark session.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final

from pyarrow import fs

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.location import Location

_OF_URLS: Final = "?#"
"""Characters at which most readers of Iceberg tables cut a location, since they take it for a URL."""
_EXPIRES: Final = ("s3.session-token-expires-at-ms", "gcs.oauth2.token-expires-at", "adls.sas-token-expires-at-ms")
"""The properties, or their beginnings, that say until when vended credentials are valid, in ms since the epoch."""
_TOKENS: Final = ("s3.session-token", "client.session-token")
_EXPIRED: Final = (
    "ExpiredToken",
    "TokenRefreshRequired",
    "token has expired",
    "token included in the request is expired",
)
"""What S3 says of a session token whose time is over: its error codes, and the sentences of its messages."""
_REFUSED: Final = ("ACCESS_DENIED", "INVALID_ACCESS_KEY_ID", "INVALID_CLIENT_TOKEN_ID", "InvalidToken")
"""What S3 says of a session that was revoked or forgotten: codes, as the AWS SDK for C++ writes them."""
_OPENERS: Final = ("s3.", "client.", "gcs.", "adls.", "hdfs.")
"""How the names of properties begin that open a store. The others are the catalog's, such as its own secrets."""
_ROLE: Final = ("client.assume-role.arn", "s3.role-arn", "client.role-arn")
_S3_ARGUMENTS: Final = {
    "access_key": ("s3.access-key-id", "client.access-key-id"),
    "secret_key": ("s3.secret-access-key", "client.secret-access-key"),
    "session_token": ("s3.session-token", "client.session-token"),
    "region": ("s3.region", "client.region", "client.assume-role.region"),
    "endpoint_override": ("s3.endpoint",),
    "proxy_options": ("s3.proxy-uri",),
}
_STATIC: Final = ("access_key", "secret_key", "session_token")
_ENCRYPTION: Final = "s3.sse.type"
_ENCRYPTIONS: Final = ("none", "s3")
_SIGNING: Final = "s3.remote-signing-enabled"


def path_of(location: str) -> str:
    """Return the location without its scheme, and for `file:` also without an authority."""
    parsed = Location.parse(location)
    return parsed.path if parsed.is_local else f"{parsed.authority}{parsed.path}"


def require_writable(location: str, properties: Mapping[str, str]) -> None:
    """Check, on the driver, that executors can write to a location as the properties demand it.

    Raises:
        FlussTieringError: STORAGE if the properties demand what executors cannot do, or if readers would look for the
            files elsewhere.
    """
    if any(each in location for each in _OF_URLS):
        raise FlussTieringError(
            ErrorCode.STORAGE,
            f"the lake table's location is {location!r}, and most readers cut it at {' or '.join(_OF_URLS)}: expected "
            "a location without these; let the table, or the warehouse of the lake catalog, be elsewhere",
        )
    if not Location.parse(location).is_s3:
        return
    encryption = properties.get(_ENCRYPTION, "none").lower()
    if encryption not in _ENCRYPTIONS:
        raise FlussTieringError(
            ErrorCode.STORAGE,
            f"the lake catalog has {_ENCRYPTION}={encryption}, which executors cannot ask the store for: expected "
            f"{' or '.join(_ENCRYPTIONS)}; make it the default encryption of the bucket, and remove the property",
        )
    if properties.get(_SIGNING, "false").lower() == "true":
        raise FlussTieringError(
            ErrorCode.STORAGE,
            f"the lake catalog has {_SIGNING}=true, and executors cannot ask it to sign their requests: expected "
            "vended credentials; set header.X-Iceberg-Access-Delegation=vended-credentials for the lake catalog",
        )


def filesystem_of(location: str, properties: Mapping[str, str]) -> fs.FileSystem:
    """Return the file system of a location, for paths as `path_of` returns them.

    Args:
        location: A location in it.
        properties: The properties of Iceberg's FileIO.
    """
    parsed = Location.parse(location)
    if parsed.is_local:
        return fs.LocalFileSystem()
    if parsed.is_s3:
        return fs.S3FileSystem(**s3_arguments(parsed.authority, properties))
    # It takes seconds to load.
    from pyiceberg.io.pyarrow import PyArrowFileIO  # noqa: PLC0415

    return PyArrowFileIO(dict(properties)).fs_by_scheme(parsed.scheme, parsed.authority)


def s3_arguments(bucket: str, properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of pyarrow's S3FileSystem. Without keys or a role, each machine uses its own."""
    found = {name: _first(keys, properties) for name, keys in _S3_ARGUMENTS.items()}
    arguments: dict[str, Any] = {name: value for name, value in found.items() if value is not None}
    if (role := _first(_ROLE, properties)) is not None:
        # As in Iceberg, the role is assumed with what the machine itself has.
        arguments = {name: value for name, value in arguments.items() if name not in _STATIC}
        arguments["role_arn"] = role
        session = _first(
            ("client.assume-role.session-name", "s3.role-session-name", "client.role-session-name"), properties
        )
        if session is not None:
            arguments["session_name"] = session
        if "client.assume-role.external-id" in properties:
            arguments["external_id"] = properties["client.assume-role.external-id"]
    if properties.get("s3.anonymous", "false").lower() == "true":
        arguments["anonymous"] = True
    if properties.get("s3.force-virtual-addressing", "false").lower() == "true":
        arguments["force_virtual_addressing"] = True
    for name in ("connect_timeout", "request_timeout"):
        if (value := properties.get(f"s3.{name.replace('_', '-')}")) is not None:
            arguments[name] = float(value)
    if "s3.acl" in properties:
        arguments["default_metadata"] = {"ACL": properties["s3.acl"]}
    if not arguments.keys() & {"region", "endpoint_override"}:
        arguments["region"] = fs.resolve_s3_region(bucket)
    return arguments


def openers(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that open a store, without those of the catalog itself."""
    return {key: value for key, value in properties.items() if key.startswith(_OPENERS)}


def credentials_expire_ms(properties: Mapping[str, str]) -> int | None:
    """Return until when the vended credentials are valid, in ms since the epoch; None if that is not known."""
    times = [value for key, value in properties.items() if key.startswith(_EXPIRES)]
    return min((int(each) for each in times if each.isdecimal()), default=None)


def credentials_last(properties: Mapping[str, str], ms: int) -> bool:
    """Return whether the credentials are valid for so many milliseconds. Those of an unknown end may not be."""
    expires = credentials_expire_ms(properties)
    return _first(_TOKENS, properties) is None if expires is None else expires - time.time() * 1000 >= ms


class ExpiredCredentialsError(FlussTieringError):
    """The error of a store whose credentials are not valid any more. With new ones, the same may succeed.

    Its message says what is known of "them", the credentials.
    """

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.STORAGE, message)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what is pickled."""
        return ExpiredCredentialsError, (self.message,)


def require_valid(properties: Mapping[str, str]) -> None:
    """Check that the credentials have not expired.

    Raises:
        ExpiredCredentialsError: if they have.
    """
    expires = credentials_expire_ms(properties)
    if expires is not None and expires <= time.time() * 1000:
        raise ExpiredCredentialsError(f"they expired at {_time(expires)}")


@contextmanager
def naming_expired_credentials(properties: Mapping[str, str], *, refused_too: bool = True) -> Iterator[None]:
    """Let an error of a store say that the credentials have expired, if they have.

    Args:
        properties: The properties of Iceberg's FileIO.
        refused_too: Whether a session that the store refuses counts as expired, since it may have been revoked. S3
            refuses reading what does not exist, too, unless the session may list the bucket.

    Raises:
        ExpiredCredentialsError: for an error of the store after the credentials have expired, or if the store says that
            they have, or if it refuses a session.
    """
    try:
        yield
    except OSError as error:
        require_valid(properties)
        said = str(error)
        if any(each in said for each in _EXPIRED):
            raise ExpiredCredentialsError(f"the store says that they expired ({said})") from error
        if refused_too and _first(_TOKENS, properties) is not None and any(each in said for each in _REFUSED):
            raise ExpiredCredentialsError(f"the store refuses them ({said})") from error
        raise


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")


def _first(keys: tuple[str, ...], properties: Mapping[str, str]) -> str | None:
    return next((properties[key] for key in keys if properties.get(key)), None)
