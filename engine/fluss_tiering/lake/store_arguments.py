"""The arguments of pyarrow's file systems, from the properties of Iceberg's FileIOs in Java.

Where Iceberg has no property, the one of PyIceberg is taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyarrow import fs

from fluss_tiering.model.errors import ErrorCode, FlussTieringError

_ROLE: Final = ("client.assume-role.arn", "s3.role-arn", "client.role-arn")
_S3_ARGUMENTS: Final = {
    "access_key": ("s3.access-key-id", "client.access-key-id"),
    "secret_key": ("s3.secret-access-key", "client.secret-access-key"),
    "session_token": ("s3.session-token", "client.session-token"),
    "region": ("s3.region", "client.region", "client.assume-role.region"),
    "endpoint_override": ("s3.endpoint",),
    "proxy_options": ("s3.proxy-uri", "http-client.proxy-endpoint"),
}
_STATIC: Final = ("access_key", "secret_key", "session_token")
_GCS_TIME_LIMIT: Final = timedelta(minutes=1)
"""How long a call to Google Cloud Storage is repeated. pyarrow's own limit is 15 minutes."""
_GCS_TOKEN_LASTS: Final = timedelta(hours=1)
"""How long a token is valid of which nobody says it. It is Google's default; pyarrow wants to know a time."""
_AZURE_ARGUMENTS: Final = {
    "sas_token": "adls.sas-token",
    "client_id": "adls.client-id",
    "client_secret": "adls.client-secret",
    "tenant_id": "adls.tenant-id",
    "blob_storage_authority": "adls.blob-storage-authority",
    "blob_storage_scheme": "adls.blob-storage-scheme",
    "dfs_storage_authority": "adls.dfs-storage-authority",
    "dfs_storage_scheme": "adls.dfs-storage-scheme",
}
_SHARED_KEY: Final = "adls.auth.shared-key.account."


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
    virtual = properties.get("s3.force-virtual-addressing", "false").lower() == "true"
    if virtual or properties.get("s3.path-style-access", "true").lower() == "false":
        arguments["force_virtual_addressing"] = True
    for name in ("connect_timeout", "request_timeout"):
        if (value := properties.get(f"s3.{name.replace('_', '-')}")) is not None:
            arguments[name] = float(value)
    if "s3.acl" in properties:
        arguments["default_metadata"] = {"ACL": properties["s3.acl"]}
    if not arguments.keys() & {"region", "endpoint_override"}:
        arguments["region"] = fs.resolve_s3_region(bucket)
    return arguments


def gcs_arguments(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of pyarrow's GcsFileSystem. Without a token, each machine uses its own credentials."""
    arguments: dict[str, Any] = {"retry_time_limit": _GCS_TIME_LIMIT}
    if properties.get("gcs.no-auth", "false").lower() == "true":
        arguments["anonymous"] = True
    elif token := properties.get("gcs.oauth2.token"):
        ends = properties.get("gcs.oauth2.token-expires-at", "")
        arguments["access_token"] = token
        arguments["credential_token_expiration"] = (
            datetime.fromtimestamp(int(ends) / 1000, UTC) if ends.isdecimal() else datetime.now(UTC) + _GCS_TOKEN_LASTS
        )
    if account := properties.get("gcs.impersonate.service-account"):
        arguments["target_service_account"] = account
    if place := properties.get("gcs.default-bucket-location"):
        arguments["default_bucket_location"] = place
    if host := properties.get("gcs.service.host"):
        scheme, separator, rest = host.rstrip("/").partition("://")
        arguments["scheme"], arguments["endpoint_override"] = (scheme, rest) if separator else ("https", scheme)
    return arguments


def azure_arguments(authority: str, properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of pyarrow's AzureFileSystem. Without a key, each machine uses its own credentials.

    Args:
        authority: The authority of a location: `container@account.dfs.core.windows.net`, or only a container.
        properties: The properties of Iceberg's FileIO.

    Raises:
        FlussTieringError: STORAGE if nothing names the storage account.
    """
    host = authority.partition("@")[2]
    account, _, domain = host.partition(".")
    arguments: dict[str, Any] = {
        name: properties[key] for name, key in _AZURE_ARGUMENTS.items() if properties.get(key) is not None
    }
    if domain and "blob_storage_authority" not in arguments:
        # Such a domain may be one of a national cloud or of OneLake.
        kinds = {f"{kind}_storage_authority": f".{_of_service(domain, kind)}" for kind in ("blob", "dfs")}
        arguments = {**kinds, **arguments}
    if endpoint := _first((f"adls.connection-string.{host}", f"adls.connection-string.{account}"), properties):
        scheme, _, rest = endpoint.partition("://")
        server = rest.partition("/")[0]
        if server.startswith(f"{account}."):
            server = server.removeprefix(account)
        for kind in ("blob", "dfs"):
            arguments[f"{kind}_storage_authority"] = server if server[0] != "." else f".{_of_service(server[1:], kind)}"
            arguments[f"{kind}_storage_scheme"] = scheme
    account = account or _first(("adls.account-name", f"{_SHARED_KEY}name"), properties) or ""
    if not account:
        raise FlussTieringError(
            ErrorCode.STORAGE,
            f"nothing names the storage account of the container {authority!r}: expected a warehouse such as "
            "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/FOLDER",
        )
    arguments["account_name"] = account
    if token := _first((f"adls.sas-token.{host}", f"adls.sas-token.{account}"), properties):
        arguments["sas_token"] = token
    if "sas_token" in arguments:
        arguments["sas_token"] = arguments["sas_token"].removeprefix("?")
    elif key := _first((f"{_SHARED_KEY}key", "adls.account-key"), properties):
        arguments["account_key"] = key
    return arguments


def _of_service(domain: str, kind: str) -> str:
    """Return the domain of the blob or of the dfs service beside the other."""
    return ".".join(kind if each in {"blob", "dfs"} else each for each in domain.split("."))


def _first(keys: tuple[str, ...], properties: Mapping[str, str]) -> str | None:
    return next((properties[key] for key in keys if properties.get(key)), None)
