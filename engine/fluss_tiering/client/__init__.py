"""The typed client of the tiering server, once for blocking code and once for asyncio.

The names in `__all__` are public, here and in `fluss_tiering`. The modules of this package are private.
"""

from fluss_tiering.client.aio import AsyncTieringClient
from fluss_tiering.client.client import TieringClient
from fluss_tiering.client.leasing import lease_latest_snapshots
from fluss_tiering.client.scan import TableScan
from fluss_tiering.client.target import DEFAULT_PORT, DEFAULT_TARGET
from fluss_tiering.client.unchanged import finish_unchanged_tables

__all__ = [
    "DEFAULT_PORT",
    "DEFAULT_TARGET",
    "AsyncTieringClient",
    "TableScan",
    "TieringClient",
    "finish_unchanged_tables",
    "lease_latest_snapshots",
]
