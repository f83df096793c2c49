"""The typed client of the tiering server, blocking and asyncio."""

import fluss_tiering.client.fork  # noqa: F401 - before gRPC is loaded
from fluss_tiering.client.aio import AsyncTieringClient
from fluss_tiering.client.channel import DEFAULT_PORT, DEFAULT_TARGET
from fluss_tiering.client.client import TieringClient
from fluss_tiering.client.leasing import lease_latest_snapshots
from fluss_tiering.model.lease import LeaseDrop

__all__ = [
    "DEFAULT_PORT",
    "DEFAULT_TARGET",
    "AsyncTieringClient",
    "LeaseDrop",
    "TieringClient",
    "lease_latest_snapshots",
]
