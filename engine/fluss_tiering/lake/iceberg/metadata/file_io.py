"""The properties of a table's FileIO in the JVM, with which executors open the same store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fluss_tiering.lake.iceberg.library import JavaTable, ask
from fluss_tiering.lake.object_store import openers
from fluss_tiering.model.location import Location

_S3A: Final = {
    "s3.access-key-id": ("access.key",),
    "s3.secret-access-key": ("secret.key",),
    "s3.session-token": ("session.token",),
    "s3.endpoint": ("endpoint",),
    "s3.region": ("endpoint.region",),
    "client.assume-role.arn": ("assumed.role.arn",),
    "client.assume-role.session-name": ("assumed.role.session.name",),
    "client.assume-role.external-id": ("assumed.role.external.id",),
    "s3.sse.type": ("encryption.algorithm", "server-side-encryption-algorithm"),
}
"""Iceberg's property -> what comes behind `fs.s3a.` in Hadoop's settings."""
_PLAIN: Final = "connection.ssl.enabled"
_ALGORITHMS: Final = {"aes256": "s3", "sse-kms": "kms", "dsse-kms": "dsse-kms", "sse-c": "custom", "cse-kms": "custom"}


def file_io_properties(table: JavaTable, location: str, catalog_properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties with which executors can write to a location as the driver's JVM does.

    They are secrets, and only those that open the store: executors do not get the secrets of the catalog itself. Of one
    name, the server's value comes last, then that of the Spark session, then what a REST catalog vended: first what it
    vended for the table, and before that what it vended for the longest prefix of the location.

    Args:
        table: The table, as it was loaded just now.
        location: Where the data files are written.
        catalog_properties: The properties of the lake catalog as the server knows them.
    """
    parsed = Location.parse(location)
    prefixes = (f"fs.s3a.bucket.{parsed.authority}.", "fs.s3a.") if parsed.is_s3 else ()
    names = [*(name for names in _S3A.values() for name in names), _PLAIN]
    settings = [prefix + name for prefix in prefixes for name in names]
    store = ask(table, "store", {"location": location, "settings": settings})
    found = {**catalog_properties, **store["properties"], **store["credentials"]}
    return openers({**found, **_of_s3a(store.get("hadoop", {}), prefixes)})


def _of_s3a(conf: Mapping[str, str], prefixes: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, names in _S3A.items():
        values = [conf[prefix + name] for prefix in prefixes for name in names if prefix + name in conf]
        if values:
            found[key] = values[0]
    if "s3.sse.type" in found:
        found["s3.sse.type"] = _ALGORITHMS.get(found["s3.sse.type"].lower(), found["s3.sse.type"])
    if conf.get(f"fs.s3a.{_PLAIN}") == "false" and "://" not in found.get("s3.endpoint", "://"):
        found["s3.endpoint"] = f"http://{found['s3.endpoint']}"
    return found
