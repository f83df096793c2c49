"""Conversions between the description of a storage and its message."""

from __future__ import annotations

from fluss_tiering.api.v1 import tables_pb2
from fluss_tiering.model.table import StorageDescription


def description_to_pb(description: StorageDescription) -> tables_pb2.DescribeStorageResponse:
    """Return the message of a server's storage."""
    return tables_pb2.DescribeStorageResponse(
        kind=description.kind,
        data_dir=description.data_dir,
        data_dir_id=description.data_dir_id,
        server_version=description.server_version,
        bootstrap_servers=description.bootstrap_servers,
    )


def description_from_pb(message: tables_pb2.DescribeStorageResponse) -> StorageDescription:
    """Return the server's storage of a message."""
    return StorageDescription(
        kind=message.kind,
        data_dir=message.data_dir,
        data_dir_id=message.data_dir_id,
        server_version=message.server_version,
        bootstrap_servers=message.bootstrap_servers,
    )
