"""Picks the reader for a storage: a cluster itself, files where they are on this machine, else the server's streams."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fluss_tiering.model.table import StorageDescription, TableInfo
from fluss_tiering.storage.data_dir import read_data_dir_id
from fluss_tiering.storage.embedded.reader import EmbeddedSplitReader
from fluss_tiering.storage.fluss.supported import ICEBERG, LAKE_FORMAT
from fluss_tiering.storage.protocol import SplitReader

if TYPE_CHECKING:
    from fluss_tiering.storage.fluss.access import ClusterAccess
    from fluss_tiering.storage.fluss.reading.remote_files import RemoteFiles
    from fluss_tiering.storage.fluss.rpc.client import FlussClient

_FLUSS_KIND: Final = "fluss"


def cluster_access(description: StorageDescription) -> ClusterAccess | None:
    """What this process's environment says of access to a storage that is a cluster, to be carried to its readers.

    Raises:
        FlussTieringError: INVALID_REQUEST for a user without a password, or a password without a user.
    """
    if description.kind != _FLUSS_KIND:
        return None
    from fluss_tiering.storage.fluss.access import ClusterAccess  # noqa: PLC0415 - see below

    return ClusterAccess.from_environment()


def is_bucketed_as_lake(description: StorageDescription, table: TableInfo) -> bool:
    """Whether rows lie in the buckets that Iceberg's transform says; a cluster has tables that are hashed otherwise."""
    return description.kind != _FLUSS_KIND or table.descriptor.properties.get(LAKE_FORMAT) == ICEBERG


def open_split_reader(description: StorageDescription, target: str, access: ClusterAccess | None = None) -> SplitReader:
    """A reader of the splits that a server plans.

    Args:
        description: what the server says of its storage. Its files are read directly when the path leads to the very
            same data folder here, which the folder's id tells; a cluster always is.
        target: "host:port" of the server, for when it does not.
        access: what a cluster asks of its readers; without, what this process's environment says.
    """
    if description.kind == _FLUSS_KIND:
        return _cluster_reader(description, access or cluster_access(description))
    if description.data_dir and read_data_dir_id(Path(description.data_dir)) == description.data_dir_id:
        return EmbeddedSplitReader(Path(description.data_dir))
    # The client takes a worker longer to load than a small piece takes to read.
    from fluss_tiering.client.client import TieringClient  # noqa: PLC0415
    from fluss_tiering.storage.remote import RemoteSplitReader  # noqa: PLC0415

    return RemoteSplitReader(TieringClient(target))


def _cluster_reader(description: StorageDescription, access: ClusterAccess | None) -> SplitReader:
    from fluss_tiering.storage.fluss.reading.reader import FlussSplitReader  # noqa: PLC0415 - see above

    return FlussSplitReader(*_connected(description.bootstrap_servers, access))


@cache
def _connected(bootstrap_servers: str, access: ClusterAccess | None) -> tuple[FlussClient, RemoteFiles]:
    """One client for all tasks that run in this process, one after another or at once: connections are kept."""
    from fluss_tiering.storage.fluss.reading.remote_files import RemoteFiles  # noqa: PLC0415 - see above
    from fluss_tiering.storage.fluss.rpc.client import FlussClient  # noqa: PLC0415 - see above

    if access is None:
        return FlussClient(bootstrap_servers), RemoteFiles()
    return FlussClient(bootstrap_servers, credentials=access.credentials), RemoteFiles(dict(access.s3))
