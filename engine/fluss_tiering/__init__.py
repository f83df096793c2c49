"""Tier Apache Fluss tables into a data lake with Spark: the client, its values and its errors.

Everything that other programs may use is in `__all__` here; see `docs/reference/public-names.md`. The packages below
this one hold the server, the Spark application, the storages and the command line. Their modules are private.

Values and errors are loaded with the package. The client is loaded when it is first used, because it needs gRPC.
"""

from importlib import import_module
from typing import TYPE_CHECKING

import fluss_tiering.fork_handling  # noqa: F401 - before gRPC is loaded
from fluss_tiering.model.column_changes import AddColumn, DropColumn, RenameColumn, WidenColumn
from fluss_tiering.model.data_type import DataType, DataTypeRoot, Field
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lake import LakeSnapshot
from fluss_tiering.model.table import (
    BucketInfo,
    Column,
    KvSnapshot,
    StorageDescription,
    TableBucket,
    TableDescriptor,
    TableInfo,
    TablePath,
    TableSchema,
    WriteKind,
)
from fluss_tiering.model.tiering import (
    AcquiredLease,
    Claim,
    HeartbeatAnswer,
    HeartbeatEntry,
    KvSnapshotLease,
    LeaseDrop,
    LeaseOutcome,
    RoundOrigin,
    StatusChanges,
    TieringRound,
    TieringState,
    TieringStats,
    TieringStatus,
)
from fluss_tiering.version import __version__

if TYPE_CHECKING:
    from fluss_tiering.client import (
        DEFAULT_PORT,
        DEFAULT_TARGET,
        AsyncTieringClient,
        TableScan,
        TieringClient,
        finish_unchanged_tables,
        lease_latest_snapshots,
    )

__all__ = [
    "DEFAULT_PORT",
    "DEFAULT_TARGET",
    "AcquiredLease",
    "AddColumn",
    "AsyncTieringClient",
    "BucketInfo",
    "Claim",
    "Column",
    "DataType",
    "DataTypeRoot",
    "DropColumn",
    "ErrorCode",
    "Field",
    "FlussTieringError",
    "HeartbeatAnswer",
    "HeartbeatEntry",
    "KvSnapshot",
    "KvSnapshotLease",
    "LakeSnapshot",
    "LeaseDrop",
    "LeaseOutcome",
    "RenameColumn",
    "RoundOrigin",
    "StatusChanges",
    "StorageDescription",
    "TableBucket",
    "TableDescriptor",
    "TableInfo",
    "TablePath",
    "TableScan",
    "TableSchema",
    "TieringClient",
    "TieringRound",
    "TieringState",
    "TieringStats",
    "TieringStatus",
    "WidenColumn",
    "WriteKind",
    "__version__",
    "finish_unchanged_tables",
    "lease_latest_snapshots",
]

# Type checkers see the imports above. They would take any name for a name of the package if they saw this function.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module("fluss_tiering.client"), name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
