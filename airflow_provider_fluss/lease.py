"""The lease as tasks hand it to each other: its id, and its value in the XCom of the acquire task.

The lease id is the same for every try of the acquire task. A retry therefore renews what the earlier try pinned and
does not pin it a second time. The attempt token is new at each acquire. It fences off whatever an older try still does.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import DEFAULT_LEASE_DURATION_MS

DEFAULT_CONN_ID: Final = "fluss_default"
ONE_TASK_KEY: Final = "lease"
"""The XCom in which the operator that does all in one task keeps its lease. Its return value is about the rounds."""
MAX_LEASE_DURATION_MS: Final = 30 * 24 * 60 * 60 * 1000
"""The longest duration that a server grants a lease for."""
_FIELDS: Final = frozenset({"lease_id", "attempt_token", "tables", "lease_duration_ms", "fluss_conn_id"})
_MAX_TOKEN: Final = 2**63 - 1
_MAX_ID_CHARACTERS: Final = 512
"""The longest id that a server takes. It takes no character that cannot be printed, either."""
_SHOWN_CHARACTERS: Final = 80
_READABLE_CHARACTERS: Final = 48
_DIGEST_CHARACTERS: Final = 32


def lease_id(dag_id: str, run_id: str, task_id: str, table_ids: Iterable[int], map_index: int = -1) -> str:
    """Return the id of the lease that this task of this DAG run holds on these tables.

    The id depends on the table ids, because the same index of a mapped task can mean another table after a clear. It
    depends on the map index too, because two instances may name the same tables: each has a lease of its own then, so
    that neither ends the attempt of the other. The id begins with `airflow-` and the DAG id, for people who list
    leases. It ends with a digest that tells leases apart. The id is always shorter than 100 characters.

    Args:
        dag_id: The id of the DAG.
        run_id: The id of the DAG run.
        task_id: The id of the acquire task.
        table_ids: The ids of the leased tables, in any order.
        map_index: The map index of the task, or -1 if it is not mapped.
    """
    mapped = [map_index] if map_index >= 0 else []
    return _named(dag_id, [dag_id, run_id, task_id, sorted(set(table_ids)), *mapped])


def _named(dag_id: str, identity: Sequence[object]) -> str:
    digest = hashlib.sha256(json.dumps(identity, default=str).encode()).hexdigest()[:_DIGEST_CHARACTERS]
    readable = re.sub(r"[^A-Za-z0-9_.-]", "-", dag_id)[:_READABLE_CHARACTERS]
    return f"airflow-{readable}-{digest}"


class MalformedLeaseError(ValueError):
    """A value names a lease, but no acquire task returns such values. Another try would not change that."""


@dataclass(frozen=True, slots=True)
class LeaseHandle:
    """The lease that the acquire task returns and the other tasks of its group use.

    Attributes:
        lease_id: The id of the lease.
        attempt_token: The token of the acquire that made this handle, or None if the server has no leases.
        tables: The `database.table` of each table under the lease.
        lease_duration_ms: The duration in milliseconds for which the lease is acquired and renewed.
        fluss_conn_id: The Airflow connection of the server that granted the lease.
    """

    lease_id: str
    attempt_token: int | None
    tables: tuple[str, ...]
    lease_duration_ms: int
    fluss_conn_id: str

    def to_xcom(self) -> dict[str, Any]:
        """Return the handle as JSON values, for XCom and for the arguments of a trigger."""
        return {
            "lease_id": self.lease_id,
            "attempt_token": self.attempt_token,
            "tables": list(self.tables),
            "lease_duration_ms": self.lease_duration_ms,
            "fluss_conn_id": self.fluss_conn_id,
        }

    @classmethod
    def from_xcom(cls, value: object, dag_id: str = "", run_id: str = "") -> LeaseHandle:
        """Return the handle that `to_xcom` wrote.

        A value of an older format names tables but has no lease id or no attempt token. It stands for a fresh lease.
        All tasks of the DAG run then use the same fresh id, and the application leases under it what it needs. The
        older lease ends when it expires.

        Args:
            value: The XCom of the acquire task.
            dag_id: The id of the DAG, which becomes part of a fresh lease id.
            run_id: The id of the DAG run, which becomes part of a fresh lease id.

        Raises:
            MalformedLeaseError: The value is a lease with a wrong field. The message names it.
            ValueError: The value is missing or is not a lease. The message says what was found.
        """
        if isinstance(value, Mapping) and not {"lease_id", "attempt_token"} <= value.keys():
            value = _with_fresh_id(value, dag_id, run_id)
        if not isinstance(value, Mapping) or not value.keys() >= _FIELDS:
            raise ValueError(_refusal(_describe(value)))
        for name, expected, is_right in (
            ("lease_id", f"a text of 1 to {_MAX_ID_CHARACTERS} printable characters", _is_id),
            ("attempt_token", f"None or a whole number from 1 to {_MAX_TOKEN}", _is_token),
            ("tables", "a list of DATABASE.TABLE with at least one table", _are_tables),
            ("lease_duration_ms", f"a whole number from 1 to {MAX_LEASE_DURATION_MS}", _is_duration),
            ("fluss_conn_id", f"a text of 1 to {_MAX_ID_CHARACTERS} printable characters", _is_id),
        ):
            if not is_right(value[name]):
                raise MalformedLeaseError(_refusal(f"{name} {_cut(value[name])}: expected {expected}"))
        return cls(
            value["lease_id"],
            value["attempt_token"],
            tuple(value["tables"]),
            value["lease_duration_ms"],
            value["fluss_conn_id"],
        )


def _is_whole(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


def _is_id(value: object) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= _MAX_ID_CHARACTERS and value.isprintable()


def _is_token(value: object) -> bool:
    return value is None or _is_whole(value, _MAX_TOKEN)


def _is_duration(value: object) -> bool:
    return _is_whole(value, MAX_LEASE_DURATION_MS)


def _are_tables(value: object) -> bool:
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        return False
    try:
        return all(isinstance(each, str) and bool(TablePath.parse(each)) for each in value)
    except FlussTieringError:
        return False


def _refusal(found: str) -> str:
    return (
        f"Expected the XCom of a FlussAcquireKvSnapshotLeaseOperator task (lease_id, attempt_token, tables, "
        f"lease_duration_ms, fluss_conn_id), found {found}. Pass lease=<acquire task>.output."
    )


def _cut(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}... ({len(text)} characters)"


def _with_fresh_id(value: Mapping[Any, Any], dag_id: str, run_id: str) -> Mapping[Any, Any]:
    """Return the value with the fields that an older format lacks. A value without tables is returned unchanged."""
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
    return f"{type(value).__name__} {_cut(value)}"
