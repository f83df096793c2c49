"""The file systems that executors write to, opened with the properties of Iceberg's own FileIO.

The properties have Iceberg's names: the keys, tokens, roles and endpoints of the catalog, those that a REST catalog has
vended for a table, and those of the Spark session.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pyarrow import fs

from fluss_tiering.lake.store_arguments import azure_arguments, gcs_arguments, s3_arguments
from fluss_tiering.lake.store_properties import require_known
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.location import Location

_LIBHDFS: Final = "libhdfs.so"
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
_OPENERS: Final = ("s3.", "client.", "http-client.", "gcs.", "adls.", "hdfs.")
"""How the names of properties begin that open a store. The others are the catalog's, such as its own secrets."""


def path_of(location: str) -> str:
    """Return the location as its file system names it: the bucket or the container with the path, or only the path."""
    parsed = Location.parse(location)
    if parsed.is_local or parsed.is_hdfs:
        return parsed.path
    if parsed.is_azure:
        return f"{parsed.authority.partition('@')[0]}{parsed.path}"
    return f"{parsed.authority}{parsed.path}"


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
    require_store(location, properties)


def require_store(location: str, properties: Mapping[str, str]) -> None:
    """Check that executors can use the store of a location. A lake catalog's warehouse is one before a table is opened.

    Raises:
        FlussTieringError: STORAGE if the properties demand what executors cannot do, or for HDFS without its library.
    """
    require_known(location, properties)
    if Location.parse(location).is_hdfs:
        require_libhdfs(os.environ)


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
    if parsed.is_gcs:
        return fs.GcsFileSystem(**gcs_arguments(properties))
    if parsed.is_azure:
        return fs.AzureFileSystem(**azure_arguments(parsed.authority, properties))
    if parsed.is_hdfs:
        return _hdfs(f"{parsed.scheme}://{parsed.authority}" if parsed.authority else "default", properties)
    # It takes seconds to load.
    from pyiceberg.io.pyarrow import PyArrowFileIO  # noqa: PLC0415

    return PyArrowFileIO(dict(properties)).fs_by_scheme(parsed.scheme, parsed.authority)


def require_libhdfs(environment: Mapping[str, str]) -> None:
    """Check that pyarrow finds the library of Hadoop with which it writes to HDFS.

    Raises:
        FlussTieringError: STORAGE if it does not.
    """
    native = environment.get("HADOOP_HOME")
    folders = [
        environment.get("ARROW_LIBHDFS_DIR"),
        None if native is None else f"{native}/lib/native",
        *environment.get("LD_LIBRARY_PATH", "").split(":"),
    ]
    if not any(Path(folder, _LIBHDFS).is_file() for folder in folders if folder):
        raise _no_hdfs(f"{_LIBHDFS} was not found")


def _hdfs(name_node: str, properties: Mapping[str, str]) -> fs.FileSystem:
    require_libhdfs(os.environ)
    try:
        return fs.HadoopFileSystem(
            name_node, 0, user=properties.get("hdfs.user"), kerb_ticket=properties.get("hdfs.kerberos_ticket")
        )
    except OSError as error:
        raise _no_hdfs(str(error)) from None


def _no_hdfs(why: str) -> FlussTieringError:
    return FlussTieringError(
        ErrorCode.STORAGE,
        f"Python cannot write to HDFS on {socket.gethostname()} ({why}): expected ARROW_LIBHDFS_DIR, the folder of "
        f"Hadoop's {_LIBHDFS}, JAVA_HOME, and CLASSPATH, as `hadoop classpath --glob` prints it; set them for the "
        "driver and for the executors, or use a warehouse in an object store",
    )


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
