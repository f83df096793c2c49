"""Opens the Fluss cluster whose tables a server tiers, and waits for a cluster that cannot be reached yet."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import Final

import structlog

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.core.threads import ServerThreads
from fluss_tiering.server.settings.server_settings import ServerSettings
from fluss_tiering.storage.data_dir import DataDir
from fluss_tiering.storage.fluss.access import ClusterLink
from fluss_tiering.storage.fluss.rpc.api_keys import SUPPORTED_VERSIONS, ApiKey
from fluss_tiering.storage.fluss.rpc.call import ServerKind
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from fluss_tiering.storage.fluss.rpc.connection_steps import api_versions
from fluss_tiering.storage.fluss.rpc.errors import FlussConnectionError, FlussServerError
from fluss_tiering.storage.fluss.storage import FlussStorage

_FIRST_TRY_S: Final = 1.0
_TRY_S: Final = 5.0
_PAUSE_S: Final = 1.0
_LEASES: Final = frozenset(
    {ApiKey.ACQUIRE_KV_SNAPSHOT_LEASE, ApiKey.RELEASE_KV_SNAPSHOT_LEASE, ApiKey.DROP_KV_SNAPSHOT_LEASE}
)

_NEEDED: Final = frozenset(
    {
        ApiKey.LIST_DATABASES,
        ApiKey.LIST_TABLES,
        ApiKey.GET_TABLE_INFO,
        ApiKey.GET_METADATA,
        ApiKey.LAKE_TIERING_HEARTBEAT,
        ApiKey.PREPARE_LAKE_TABLE_SNAPSHOT,
        ApiKey.COMMIT_LAKE_TABLE_SNAPSHOT,
        ApiKey.GET_LAKE_SNAPSHOT,
    }
)
"""The calls of a coordinator without which nothing is tiered."""

logger = structlog.get_logger(__name__)


async def open_fluss(settings: ServerSettings, threads: ServerThreads, stack: AsyncExitStack) -> FlussStorage:
    """Open the cluster of the settings as a storage, and hold the data folder for the server's own state.

    The server waits for a cluster that cannot be reached, up to the time that the settings allow.

    Args:
        stack: Closes the data folder and the connections.

    Raises:
        FlussServerError: The cluster refuses the credentials.
        FlussTieringError: UNAVAILABLE if the cluster cannot be reached in time; CORRUPT_DATA if another kind of server
            answers; UNSUPPORTED_VERSION if the cluster lacks calls that tiering needs; DATA_DIR_IN_USE if another
            server holds the data folder; STORAGE if the folder cannot be used.
    """
    data_dir = await threads.storage(DataDir.open, settings.data_dir)
    stack.callback(data_dir.close)
    await threads.storage(data_dir.settle)
    client = FlussClient(settings.fluss, credentials=settings.fluss_credentials)
    stack.callback(client.close)
    link = ClusterLink(settings.fluss, settings.fluss_credentials, client)
    storage = await _open_when_reachable(link, settings.fluss_start_timeout_ms / 1000, threads)
    await _check_served(link, threads)
    return storage


async def _open_when_reachable(link: ClusterLink, seconds: float, threads: ServerThreads) -> FlussStorage:
    deadline = time.monotonic() + seconds
    tries = 0
    while True:
        try:
            # The first try is a short one, so that the log soon says that the cluster cannot be reached.
            return await threads.storage(FlussStorage.open, link, within=_TRY_S if tries else _FIRST_TRY_S)
        except FlussTieringError as error:
            if not _may_recover(error):
                raise
            if time.monotonic() + _PAUSE_S > deadline:
                raise FlussTieringError(
                    ErrorCode.UNAVAILABLE,
                    f"the Fluss cluster at {link.bootstrap_servers} could not be reached within {seconds:g} s: "
                    f"{error.message}",
                ) from error
            tries += 1
            if tries & (tries - 1) == 0:
                logger.warning(
                    "waiting for the Fluss cluster", bootstrap_servers=link.bootstrap_servers, why=error.message
                )
        await asyncio.sleep(_PAUSE_S)


def _may_recover(error: FlussTieringError) -> bool:
    return isinstance(error, FlussConnectionError) or (isinstance(error, FlussServerError) and error.transient)


async def _check_served(link: ClusterLink, threads: ServerThreads) -> None:
    """Refuse a cluster that lacks a call that tiering needs. Warn once of one without leases, which it can do without.

    Without this check, such a server would start and then fail in its background jobs again and again.
    """
    served = await threads.storage(link.client.call, api_versions(ServerKind.COORDINATOR))
    lacking = sorted(f"{api.name} ({api.value})" for api in _NEEDED if not served.serves(api))
    if lacking:
        raise FlussTieringError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"the Fluss cluster at {link.bootstrap_servers} does not serve {', '.join(lacking)} in a version that is "
            f"known here: expected Fluss {' or '.join(SUPPORTED_VERSIONS)}; upgrade the cluster, or this server if the "
            "cluster is newer",
        )
    missing = sorted(api.name for api in _LEASES if not served.serves(api))
    if missing:
        logger.warning(
            "the Fluss cluster has no KV snapshot leases: it may delete a KV snapshot that a slow round still reads, "
            "which then begins again; keep more KV snapshots (kv.snapshot.num-retained) or upgrade the cluster",
            bootstrap_servers=link.bootstrap_servers,
            missing=missing,
        )
