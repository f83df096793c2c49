"""The setup and the teardown of a tiering round: acquire and release a KV snapshot lease."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_fluss.hooks.fluss import FlussHook
from airflow_provider_fluss.lease import LeaseHandle, lease_id
from airflow_provider_fluss.release import release_lease
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lease import DEFAULT_LEASE_DURATION_MS
from fluss_tiering.model.table import TablePath

if TYPE_CHECKING:
    from airflow.sdk import Context

    from fluss_tiering.client import TieringClient


_WRONG_TABLES: Final = frozenset({ErrorCode.INVALID_TABLE, ErrorCode.DATABASE_NOT_EXIST, ErrorCode.TABLE_NOT_EXIST})
"""What another try will not change."""


class FlussAcquireKvSnapshotLeaseOperator(BaseOperator):
    """Leases the latest KV snapshots of tables that have not been tiered yet, so that a round can read them.

    A setup task. Its lease id is the same for every try and stands in the XCom that it returns, with the attempt token
    of this try: `{"lease_id", "attempt_token", "tables", "lease_duration_ms", "fluss_conn_id"}`. Acquiring claims
    nothing, so the tasks that follow may queue for hours. Tables without anything to pin are part of the lease all the
    same.

    Args:
        tables: `database.table` of each table of the round. (templated)
        lease_duration: how long the lease lives unless the running application renews it.
        fluss_conn_id: the connection of the tiering server. (templated)
    """

    template_fields: Sequence[str] = ("tables", "fluss_conn_id")
    ui_color = "#d6ecf7"

    def __init__(
        self,
        *,
        tables: Sequence[str],
        lease_duration: timedelta = timedelta(milliseconds=DEFAULT_LEASE_DURATION_MS),
        fluss_conn_id: str = FlussHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.tables = tables
        self.lease_duration = lease_duration
        self.fluss_conn_id = fluss_conn_id

    def execute(self, context: Context) -> dict[str, Any]:
        """Acquire under this task's lease id and return the lease for XCom."""
        if isinstance(self.tables, str) or not self.tables:
            raise AirflowFailException(
                f"tables is {self.tables!r}: expected a list of DATABASE.TABLE with at least one table"
            )
        ti = context["ti"]
        duration_ms = int(self.lease_duration.total_seconds() * 1000)
        try:
            paths = [TablePath.parse(table) for table in dict.fromkeys(self.tables)]
            with FlussHook(self.fluss_conn_id).get_client() as client:
                ids = [info.table_id for info in client.get_tables(paths)]
                lease = lease_id(ti.dag_id, ti.run_id, ti.task_id, ids)
                token = self._acquire(client, lease, paths, duration_ms)
        except FlussTieringError as error:
            if error.code in _WRONG_TABLES:
                raise AirflowFailException(str(error)) from error
            raise
        return LeaseHandle(lease, token, tuple(map(str, paths)), duration_ms, self.fluss_conn_id).to_xcom()

    def _acquire(self, client: TieringClient, lease: str, paths: Sequence[TablePath], duration_ms: int) -> int | None:
        """The attempt token; None from a server that knows no leases, without which tables are tiered then (L15)."""
        try:
            acquired = client.lease_latest_snapshots(lease, paths, duration_ms)
        except FlussTieringError as error:
            if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
            self.log.warning("The server knows no KV snapshot leases, tables are tiered without: %s", error)
            return None
        self.log.info(
            "Acquired lease %s (attempt %d) for %s", lease, acquired.attempt_token, ", ".join(map(str, paths))
        )
        return acquired.attempt_token


class FlussReleaseKvSnapshotLeaseOperator(BaseOperator):
    """Releases the lease of an acquire task, after cancelling what still runs under its attempt.

    A teardown task: it succeeds when there is nothing to release and when a newer attempt holds the lease, which it
    leaves alone.

    Args:
        lease: the output of the acquire task. (templated)
    """

    template_fields: Sequence[str] = ("lease",)
    ui_color = "#d6ecf7"

    def __init__(self, *, lease: object, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.lease = lease

    def execute(self, context: Context) -> None:
        """Cancel and drop; nothing else than the acquire task's XCom is read."""
        ti = context["ti"]
        try:
            lease = LeaseHandle.from_xcom(self.lease, ti.dag_id, ti.run_id)
        except ValueError as error:
            self.log.warning("Nothing to release. %s", error)
            return
        with FlussHook(lease.fluss_conn_id).get_client() as client:
            release_lease(client, lease, f"task {ti.task_id} of DAG run {ti.run_id} released the lease", self.log)
