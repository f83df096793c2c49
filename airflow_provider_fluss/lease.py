"""The lease as Airflow's tasks hand it to each other: its id, and the value kept in the acquire task's XCom.

The id is the same for every try of the acquire task (L17), so that a retry renews what its predecessor pinned instead
of pinning it twice. The attempt token beside it is new at each acquire; it fences what an older try still does (L22).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fluss_tiering.model.lease import DEFAULT_LEASE_DURATION_MS

DEFAULT_CONN_ID: Final = "fluss_default"
_READABLE_CHARACTERS: Final = 48
_DIGEST_CHARACTERS: Final = 32


def lease_id(dag_id: str, run_id: str, task_id: str, table_ids: Iterable[int]) -> str:
    """The id of the lease that this task of this DAG run holds on these tables.

    It names the table ids and not the map index: after a clear the same index of a mapped task can mean another table.
    The readable start is for people who list leases; the digest behind it tells the leases apart and keeps the id below
    100 characters whatever the lengths of the names.
    """
    return _named(dag_id, [dag_id, run_id, task_id, sorted(set(table_ids))])


def _named(dag_id: str, identity: Sequence[object]) -> str:
    digest = hashlib.sha256(json.dumps(identity, default=str).encode()).hexdigest()[:_DIGEST_CHARACTERS]
    readable = re.sub(r"[^A-Za-z0-9_.-]", "-", dag_id)[:_READABLE_CHARACTERS]
    return f"airflow-{readable}-{digest}"


@dataclass(frozen=True, slots=True)
class LeaseHandle:
    """What the acquire task returns and the other tasks of its group work with.

    Attributes:
        attempt_token: of the acquire that made this handle; None where none was made.
        tables: `database.table` of each table under the lease.
        lease_duration_ms: for how long it was acquired, and is to be renewed.
        fluss_conn_id: the connection of the server that granted it.
    """

    lease_id: str
    attempt_token: int | None
    tables: tuple[str, ...]
    lease_duration_ms: int
    fluss_conn_id: str

    def to_xcom(self) -> dict[str, Any]:
        """The handle as JSON values, for XCom and for a trigger's arguments."""
        return {
            "lease_id": self.lease_id,
            "attempt_token": self.attempt_token,
            "tables": list(self.tables),
            "lease_duration_ms": self.lease_duration_ms,
            "fluss_conn_id": self.fluss_conn_id,
        }

    @classmethod
    def from_xcom(cls, value: object, dag_id: str = "", run_id: str = "") -> LeaseHandle:
        """The handle that `to_xcom` wrote.

        A value of an older format, which names tables but no lease id or no attempt token, stands for a fresh lease
        (L23): its id is the same for all tasks of the DAG run, and the application leases what it needs under it. What
        the older lease pinned ends with its expiry.

        Args:
            value: of the acquire task's XCom.
            dag_id: of the run, for the id of a fresh lease.
            run_id: likewise.

        Raises:
            ValueError: the value is missing or is no lease; the message says what was found.
        """
        if isinstance(value, Mapping) and not {"lease_id", "attempt_token"} <= value.keys():
            value = _with_fresh_id(value, dag_id, run_id)
        match value:
            case {
                "lease_id": str(lease),
                "attempt_token": int() | None as token,
                "tables": [_, *_] as tables,
                "lease_duration_ms": int(duration_ms),
                "fluss_conn_id": str(conn_id),
            } if lease and all(isinstance(table, str) for table in tables):
                return cls(lease, token, tuple(tables), duration_ms, conn_id)
        raise ValueError(
            f"Expected the XCom of a FlussAcquireKvSnapshotLeaseOperator task (lease_id, attempt_token, tables, "
            f"lease_duration_ms, fluss_conn_id), found {_describe(value)}. Pass lease=<acquire task>.output."
        )


def _with_fresh_id(value: Mapping[Any, Any], dag_id: str, run_id: str) -> Mapping[Any, Any]:
    """The value, completed by what an older format lacks; unchanged where it names no tables and so is no lease."""
    if "tables" not in value:
        return value
    return {
        "lease_duration_ms": DEFAULT_LEASE_DURATION_MS,
        "fluss_conn_id": DEFAULT_CONN_ID,
        **value,
        "lease_id": _named(dag_id, [dag_id, run_id, "fresh", value["tables"]]),
        "attempt_token": None,
    }


def _describe(value: object) -> str:
    if value is None:
        return "nothing: the acquire task has not succeeded"
    if isinstance(value, Mapping):
        return f"a mapping of {', '.join(sorted(map(str, value))) or 'nothing'}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"{len(value)} values: the acquire task is mapped, and this one must be mapped with it"
    return f"{type(value).__name__} {value!r}"
