"""The properties of a table's FileIO in the JVM, with which executors open the same store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from py4j.java_gateway import JavaObject, JVMView
from py4j.protocol import Py4JError

from fluss_tiering.lake.iceberg.java import to_dict
from fluss_tiering.lake.object_store import openers
from fluss_tiering.model.location import Location

_HADOOP: Final = "org.apache.iceberg.hadoop.HadoopFileIO"
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
_ALGORITHMS: Final = {"aes256": "s3", "sse-kms": "kms", "dsse-kms": "dsse-kms", "sse-c": "custom", "cse-kms": "custom"}


def file_io_properties(
    jvm: JVMView, table: JavaObject, location: str, catalog_properties: Mapping[str, str]
) -> dict[str, str]:
    """Return the properties with which executors can write to a location as the driver's JVM does.

    They are secrets, and only those that open the store: executors do not get the secrets of the catalog itself. Of one
    name, the server's value comes last, then that of the Spark session, then what a REST catalog vended: first what it
    vended for the table, and before that what it vended for the longest prefix of the location.

    Args:
        jvm: The JVM of the Spark session.
        table: Iceberg's table object, as it was loaded just now.
        location: Where the data files are written.
        catalog_properties: The properties of the lake catalog as the server knows them.
    """
    io = table.io()
    found = {**catalog_properties, **_properties(jvm, io), **_credentials(jvm, io, location)}
    parsed = Location.parse(location)
    if str(io.getClass().getName()) == _HADOOP and parsed.is_s3:
        found = {**found, **_of_s3a(io, parsed.authority)}
    return openers(found)


def _properties(jvm: JVMView, io: JavaObject) -> dict[str, str]:
    try:
        return to_dict(jvm, io.properties())
    except Py4JError:  # Iceberg's default for a FileIO that does not tell.
        return {}


def _credentials(jvm: JVMView, io: JavaObject, location: str) -> dict[str, str]:
    """Return the vended credentials for the longest prefix of the location."""
    try:
        vended = list(io.credentials())
    except Py4JError:  # This kind of FileIO has none.
        return {}
    fitting = [each for each in vended if location.startswith(str(each.prefix()))]
    return to_dict(jvm, max(fitting, key=lambda each: len(str(each.prefix()))).config()) if fitting else {}


def _of_s3a(io: JavaObject, bucket: str) -> dict[str, str]:
    conf = io.getConf()
    found: dict[str, str] = {}
    for key, names in _S3A.items():
        for prefix in (f"fs.s3a.bucket.{bucket}.", "fs.s3a."):
            values = [str(value) for name in names if (value := conf.get(prefix + name))]
            if values:
                found.setdefault(key, values[0])
    if "s3.sse.type" in found:
        found["s3.sse.type"] = _ALGORITHMS.get(found["s3.sse.type"].lower(), found["s3.sse.type"])
    if conf.get("fs.s3a.connection.ssl.enabled") == "false" and "://" not in found.get("s3.endpoint", "://"):
        found["s3.endpoint"] = f"http://{found['s3.endpoint']}"
    return found
