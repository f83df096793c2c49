"""The right that each call needs on a Fluss cluster with ACLs (`authorizer.enabled`).

The source is what Fluss's servers check before they answer: `CoordinatorService`, `TabletService` and `RpcServiceBase`
of 0.9.1 and 1.0. The page about rights is made from this file, and the tests of rights try each one with clusters.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from fluss_tiering.storage.fluss.rpc.acls import ResourceType
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey

_UNGUARDED: Final = "Whoever may connect to the coordinator may make this call."


class Operation(StrEnum):
    """What an ACL allows (`org.apache.fluss.security.acl.OperationType`). ALL includes each other one."""

    DESCRIBE = "DESCRIBE"
    READ = "READ"
    WRITE = "WRITE"
    CREATE = "CREATE"
    DROP = "DROP"
    ALTER = "ALTER"

    def includes(self, other: Operation) -> bool:
        """Return whether who may do this may do the other: each operation includes DESCRIBE (`DefaultAuthorizer`)."""
        return other in {self, Operation.DESCRIBE}


class Use(StrEnum):
    """What somebody wants to do with a cluster."""

    SERVING = "run a server"
    READING = "read rows"
    TIERING = "tier tables"
    WRITING = "write rows"
    DEFINING = "make, alter and drop tables"


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """An operation on a kind of resource."""

    operation: Operation
    resource_type: ResourceType

    def __str__(self) -> str:
        return f"{self.operation} on {self.resource_type}"


@dataclass(frozen=True, slots=True)
class CallRight:
    """The right that a call needs.

    Attributes:
        purpose: What the call is for, as an imperative.
        uses: What the call is needed for. Nothing but tests needs a call without uses.
        right: The right; None if Fluss checks none.
        hides: Whether the answer leaves out what the user has no right to, where other calls are refused.
        note: What else there is to know, as a sentence; empty if there is nothing.
    """

    purpose: str
    uses: frozenset[Use]
    right: Right | None
    hides: bool = False
    note: str = ""


_ALL: Final = frozenset(Use)
_ON_TABLES: Final = frozenset({Use.READING, Use.TIERING, Use.WRITING})
_SERVING: Final = frozenset({Use.SERVING})
_READING: Final = frozenset({Use.READING, Use.TIERING})
_TIERING: Final = frozenset({Use.TIERING})
_WRITING: Final = frozenset({Use.WRITING})
_DEFINING: Final = frozenset({Use.DEFINING})

_DESCRIBE_DATABASE: Final = Right(Operation.DESCRIBE, ResourceType.DATABASE)
_DESCRIBE_TABLE: Final = Right(Operation.DESCRIBE, ResourceType.TABLE)
_READ: Final = Right(Operation.READ, ResourceType.TABLE)
_WRITE: Final = Right(Operation.WRITE, ResourceType.TABLE)
_DROP: Final = Right(Operation.DROP, ResourceType.TABLE)

RIGHTS: Final[Mapping[ApiKey, CallRight]] = {
    ApiKey.API_VERSIONS: CallRight("learn which calls a server serves", _ALL, None),
    ApiKey.AUTHENTICATE: CallRight("send the user and the password", _ALL, None),
    ApiKey.GET_METADATA: CallRight(
        "find the servers, and the leaders of buckets",
        _ON_TABLES,
        _DESCRIBE_TABLE,
        hides=True,
        note="The servers are named to every user.",
    ),
    ApiKey.LIST_DATABASES: CallRight("find the databases", _SERVING, _DESCRIBE_DATABASE, hides=True),
    ApiKey.GET_DATABASE_INFO: CallRight(
        "tell the cluster from others", _SERVING, _DESCRIBE_DATABASE, note="The database is `fluss`."
    ),
    ApiKey.LIST_TABLES: CallRight("find the tables", _SERVING, _DESCRIBE_TABLE, hides=True),
    ApiKey.GET_TABLE_INFO: CallRight("learn the columns and options of a table", _SERVING, _DESCRIBE_TABLE),
    ApiKey.GET_TABLE_SCHEMA: CallRight("learn the columns that a table had", _READING, _DESCRIBE_TABLE),
    ApiKey.LIST_PARTITION_INFOS: CallRight("find the partitions of a table", _ON_TABLES, _DESCRIBE_TABLE),
    ApiKey.LIST_OFFSETS: CallRight(
        "learn how far a log reaches", _READING, _DESCRIBE_TABLE, note="Fluss 0.9.1 checks no right."
    ),
    ApiKey.GET_LATEST_KV_SNAPSHOTS: CallRight("find the newest KV snapshots", _READING, _DESCRIBE_TABLE),
    ApiKey.GET_KV_SNAPSHOT_METADATA: CallRight("find the files of a KV snapshot", _READING, _DESCRIBE_TABLE),
    ApiKey.FETCH_LOG: CallRight("read the log of a bucket", _READING, _READ),
    ApiKey.SCAN_KV: CallRight("scan the rows of a bucket", _READING, _READ, note="Fluss 1.0 has this call."),
    ApiKey.ACQUIRE_KV_SNAPSHOT_LEASE: CallRight("lease KV snapshots", _READING, _READ),
    ApiKey.RELEASE_KV_SNAPSHOT_LEASE: CallRight("release leased KV snapshots", _READING, _READ),
    ApiKey.DROP_KV_SNAPSHOT_LEASE: CallRight(
        "end a lease", _READING, _READ, note="It is needed on each table of the lease."
    ),
    ApiKey.GET_LAKE_SNAPSHOT: CallRight("find the newest lake snapshot", _TIERING, _DESCRIBE_TABLE),
    ApiKey.LAKE_TIERING_HEARTBEAT: CallRight("take due tables, and report rounds", _TIERING, None, note=_UNGUARDED),
    ApiKey.PREPARE_LAKE_TABLE_SNAPSHOT: CallRight("write an offsets file", _TIERING, None, note=_UNGUARDED),
    ApiKey.COMMIT_LAKE_TABLE_SNAPSHOT: CallRight("register a lake snapshot", _TIERING, None, note=_UNGUARDED),
    ApiKey.PRODUCE_LOG: CallRight("append rows to a log table", _WRITING, _WRITE),
    ApiKey.PUT_KV: CallRight("upsert and delete rows of a primary-key table", _WRITING, _WRITE),
    ApiKey.CREATE_PARTITION: CallRight("make the partition of new rows", _WRITING, _WRITE),
    ApiKey.DROP_PARTITION: CallRight("drop a partition", _DEFINING, _WRITE),
    ApiKey.CREATE_DATABASE: CallRight(
        "make the database of a new table",
        _DEFINING,
        Right(Operation.CREATE, ResourceType.CLUSTER),
        note="The call is made only if the user sees no such database.",
    ),
    ApiKey.CREATE_TABLE: CallRight("make a table", _DEFINING, Right(Operation.CREATE, ResourceType.DATABASE)),
    ApiKey.ALTER_TABLE: CallRight(
        "change the options of a table", _DEFINING, Right(Operation.ALTER, ResourceType.TABLE)
    ),
    ApiKey.DROP_TABLE: CallRight("drop a table", _DEFINING, _DROP),
    ApiKey.DROP_DATABASE: CallRight("drop a database", frozenset(), Right(Operation.DROP, ResourceType.DATABASE)),
}
"""The right of each call of this client."""


def needed_for(uses: Collection[Use]) -> list[Right]:
    """Return the rights for these uses, without those that others on the same kind of resource include."""
    wanted = {each.right for each in RIGHTS.values() if each.right is not None and not each.uses.isdisjoint(uses)}
    return sorted(
        right
        for right in wanted
        if not any(
            other != right and other.resource_type is right.resource_type and other.operation.includes(right.operation)
            for other in wanted
        )
    )
