"""The URI of a lake table as an asset: `fluss://HOST:PORT/DATABASE/TABLE`.

The host and the port are those of the tiering server, as the Airflow connection has them. The asset stands for what of
the Fluss table is in the lake, so that its events mean that it was tiered.
"""

from __future__ import annotations

import re
import urllib.parse
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import SplitResult

from airflow.sdk import Asset

from fluss_tiering.model.table import TablePath

if TYPE_CHECKING:
    from airflow.providers.common.compat.openlineage.facet import Dataset

SCHEME: Final = "fluss"
_DEFAULT_PORT: Final = 9133
"""The port of `fluss_tiering.client`, which this module does not import since it loads gRPC."""
_RESOLVED: Final = re.compile(r"(?:dns|ipv4|ipv6):(?://[^/]*/)?(?P<host_and_port>.+:[0-9]+)")


def create_asset(table: str, *, server: str, extra: dict[str, Any] | None = None) -> Asset:
    """Return the lake table of a Fluss table as an asset.

    Args:
        table: The `database.table`.
        server: The address of the tiering server as `host:port`, with the host as the Airflow connection has it. The
            port may be left out if it is the default.
        extra: The extra of the asset.

    Raises:
        FlussTieringError: INVALID_TABLE if the table is no `database.table`.
        ValueError: The address has no host or a wrong port.
    """
    path = TablePath.parse(table)
    parts = urllib.parse.urlsplit(f"{SCHEME}://{host_and_port(server)}/{path.database}/{path.table}")
    # Airflow tells assets apart by their names, too, and takes the URI as it was written for the name.
    uri = urllib.parse.urlunsplit(sanitize_uri(parts))
    return Asset(name=uri, uri=uri, extra=extra)


def host_and_port(server: str) -> str:
    """Return the host and the port of an address as connections have it, of several the first.

    An address may begin with the id that the server is expected to have, and with the scheme of a resolver of gRPC.
    """
    address = server.rpartition("@")[2]
    resolved = _RESOLVED.fullmatch(address)
    return (resolved["host_and_port"] if resolved else address).partition(",")[0]


def sanitize_uri(uri: SplitResult) -> SplitResult:
    """Return the URI of a lake table with its host in lower case and with its port.

    Raises:
        ValueError: The URI has no host, no table, or a query.
    """
    expected = f"expected {SCHEME}://HOST:PORT/DATABASE/TABLE"
    shown = urllib.parse.urlunsplit(uri)
    parts = uri.path.strip("/").split("/")
    if not uri.hostname or len(parts) != 2 or not all(parts) or uri.query:
        raise ValueError(f"the asset URI {shown!r} names no lake table: {expected}")
    host = f"[{uri.hostname}]" if ":" in uri.hostname else uri.hostname
    return uri._replace(netloc=f"{host}:{uri.port or _DEFAULT_PORT}", path=f"/{parts[0]}/{parts[1]}")


def convert_asset_to_openlineage(asset: Asset, lineage_context: object) -> Dataset:
    """Return the dataset of OpenLineage that an asset stands for: `database.table` of `fluss://HOST:PORT`."""
    del lineage_context
    from airflow.providers.common.compat.openlineage.facet import Dataset  # noqa: PLC0415 - an optional dependency

    uri = urllib.parse.urlsplit(asset.uri)
    return Dataset(namespace=f"{SCHEME}://{uri.netloc}", name=".".join(uri.path.strip("/").split("/")))
