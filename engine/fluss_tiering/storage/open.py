"""The choice of the reader for a storage.

A cluster is read directly. The files of an embedded storage are read directly on the same machine, and through the
server's streams on other machines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fluss_tiering.model.table import StorageDescription, TableBucket, TableInfo
from fluss_tiering.storage.data_dir import read_data_dir_id
from fluss_tiering.storage.embedded.reader import EmbeddedSplitReader
from fluss_tiering.storage.protocol import SplitReader

if TYPE_CHECKING:
    from fluss_tiering.client.security import ClientSecurity
    from fluss_tiering.storage.fluss.access import ClusterAccess
    from fluss_tiering.storage.fluss.reading.remote_files import RemoteFiles
    from fluss_tiering.storage.fluss.reading.scan_session import BucketScans
    from fluss_tiering.storage.fluss.rpc.client import FlussClient

_FLUSS_KIND: Final = "fluss"


def cluster_access(description: StorageDescription) -> ClusterAccess | None:
    """Read from this process's environment how to access a cluster, for the readers; None for another storage.

    Raises:
        FlussTieringError: INVALID_REQUEST if there is a user without a password, or a password without a user.
    """
    if description.kind != _FLUSS_KIND:
        return None
    from fluss_tiering.storage.fluss.access import ClusterAccess  # noqa: PLC0415 - see below

    return ClusterAccess.from_environment()


def open_split_reader(
    description: StorageDescription,
    target: str,
    access: ClusterAccess | None = None,
    security: ClientSecurity | None = None,
) -> SplitReader:
    """Open a reader of the splits that a server plans.

    Args:
        description: The description of the server's storage. Its files are read directly if its path leads to the same
            data folder on this machine, which the folder's id proves. A cluster is always read directly.
        target: The server's "host:port", for the case that its files cannot be read directly.
        access: The access to a cluster; None to take it from this process's environment.
        security: The credentials for the server; None to take them from this process's environment. The certificate
            is always taken from there.
    """
    if description.kind == _FLUSS_KIND:
        return _cluster_reader(description, access or cluster_access(description))
    if description.data_dir and read_data_dir_id(Path(description.data_dir)) == description.data_dir_id:
        return EmbeddedSplitReader(Path(description.data_dir))
    # Loading the client takes a worker longer than reading a small piece.
    from fluss_tiering.client.client import TieringClient  # noqa: PLC0415
    from fluss_tiering.storage.remote import RemoteSplitReader  # noqa: PLC0415

    return RemoteSplitReader(TieringClient(target, security=security and security.with_own_certificate()))


def open_bucket_scans(description: StorageDescription, access: ClusterAccess | None = None) -> BucketScans | None:
    """Open what scans the buckets of a cluster at their leaders; None if only the server can scan the storage.

    Args:
        description: The description of the server's storage.
        access: The access to a cluster; None to take it from this process's environment.
    """
    if description.kind != _FLUSS_KIND:
        return None
    from fluss_tiering.storage.fluss.reading.scan_session import BucketScans  # noqa: PLC0415 - see above

    client, _ = _connected(description.bootstrap_servers, access or cluster_access(description))
    return BucketScans(client)


def open_offsets_reader(
    description: StorageDescription, table: TableInfo
) -> Callable[[str], Mapping[TableBucket, int]] | None:
    """Return what reads the offsets files of a table; None for a storage into which no other service tiers.

    The access to a cluster is taken from this process's environment.
    """
    if description.kind != _FLUSS_KIND:
        return None
    from fluss_tiering.storage.fluss.lake_offsets_files import read_offsets_file  # noqa: PLC0415 - see above

    def read(path: str) -> Mapping[TableBucket, int]:
        _, files = _connected(description.bootstrap_servers, cluster_access(description))
        return read_offsets_file(files, table.table_id, path)

    return read


def _cluster_reader(description: StorageDescription, access: ClusterAccess | None) -> SplitReader:
    from fluss_tiering.storage.fluss.reading.reader import FlussSplitReader  # noqa: PLC0415 - see above

    return FlussSplitReader(*_connected(description.bootstrap_servers, access))


@cache
def _connected(bootstrap_servers: str, access: ClusterAccess | None) -> tuple[FlussClient, RemoteFiles]:
    """Return the one client that all tasks of this process share, so that its connections are kept."""
    from fluss_tiering.storage.fluss.reading.remote_files import RemoteFiles  # noqa: PLC0415 - see above
    from fluss_tiering.storage.fluss.rpc.client import FlussClient  # noqa: PLC0415 - see above

    if access is None:
        return FlussClient(bootstrap_servers), RemoteFiles()
    return FlussClient(bootstrap_servers, credentials=access.credentials), RemoteFiles(dict(access.s3))
