"""The operators that acquire a KV snapshot lease before a tiering round and release it afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException
from airflow.sdk import BaseOperator, TaskInstanceState

from airflow_provider_fluss.attempt import continue_or_begin, release_lease
from airflow_provider_fluss.hooks.fluss import FlussHook
from airflow_provider_fluss.hooks.security import trouble
from airflow_provider_fluss.lease import LeaseHandle, MalformedLeaseError, lease_id
from airflow_provider_fluss.links import LakeTieringLink, store_table_link
from airflow_provider_fluss.operators.arguments import WRONG_TABLES, is_tiered, lease_duration_ms, table_paths
from airflow_provider_fluss.outcome import Judgement, Verdict, judge
from airflow_provider_fluss.submit_task import SubmitState, SubmitTask
from airflow_provider_fluss.task_states import TaskInstanceKey, task_states
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo, TablePath
from fluss_tiering.model.table_options import LAKE_ENABLED
from fluss_tiering.model.tiering import DEFAULT_LEASE_DURATION_MS

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.types import Logger

    from fluss_tiering.client import TieringClient


_SUCCEEDED: Final = frozenset({TaskInstanceState.SUCCESS.value, TaskInstanceState.SKIPPED.value})
"""The states of tasks that do not put in doubt that the tables are tiered."""
_REFUSED: Final = frozenset({ErrorCode.AUTHENTICATION, ErrorCode.AUTHORIZATION})
"""Errors that last until somebody changes the connection or the rights of its identity."""


class FlussAcquireKvSnapshotLeaseOperator(BaseOperator):
    """Lease the latest KV snapshots of tables that have not been tiered yet, so that a round can read them.

    Use this operator for a setup task. It returns an XCom with the keys `lease_id`, `attempt_token`, `tables`,
    `lease_duration_ms` and `fluss_conn_id`. The lease id is the same for every try of the task. So is the attempt token
    for as long as something may run under it: if this task is retried, or if a person clears a task of its group, then
    a submit task that runs goes on. A new attempt begins when the attempt was cancelled, when one of its rounds failed,
    or when all tables were tiered, and the submit task runs again.

    Acquiring a lease does not claim the tables, so the tasks that follow may wait in a queue for hours. A table that
    has nothing to pin is part of the lease too.

    Args:
        tables: The `database.table` of each table of the round. (templated)
        lease_duration: The time after which the lease expires, unless the running application renews it. It is a
            timedelta or a text such as `6h`, and at most 30 days.
        fluss_conn_id: The connection of the tiering server. (templated)
    """

    template_fields: Sequence[str] = ("tables", "fluss_conn_id")
    operator_extra_links = (LakeTieringLink(),)
    ui_color = "#d6ecf7"

    def __init__(
        self,
        *,
        tables: Sequence[str],
        lease_duration: timedelta | str = timedelta(milliseconds=DEFAULT_LEASE_DURATION_MS),
        fluss_conn_id: str = FlussHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.tables = tables
        self.lease_duration = lease_duration
        self.fluss_conn_id = fluss_conn_id

    def pre_execute(self, context: Context) -> None:
        """Store the link to the tables on the page in Airflow."""
        super().pre_execute(context)
        store_table_link(self, context)

    def execute(self, context: Context) -> dict[str, Any]:
        """Acquire the lease and return it for XCom."""
        return acquire_lease(context, self.tables, self.lease_duration, self.fluss_conn_id, self.log).to_xcom()


def acquire_lease(
    context: Context, tables: Sequence[str], duration: timedelta | str, fluss_conn_id: str, log: Logger
) -> LeaseHandle:
    """Acquire the lease of a task, or go on with its attempt; see `continue_or_begin`.

    Args:
        context: The context of the task.
        tables: The `database.table` of each table.
        duration: The time after which the lease expires unless it is renewed.
        fluss_conn_id: The connection of the tiering server.
        log: The logger for what was done.

    Raises:
        AirflowFailException: An argument is wrong, one of the tables does not exist or is not tiered, or the server
            refuses the connection's identity.
        FlussTieringError: UNAVAILABLE if the server cannot be reached.
    """
    paths = table_paths(tables)
    duration_ms = lease_duration_ms(duration)
    ti = context["ti"]
    try:
        with FlussHook(fluss_conn_id).get_client() as client:
            infos = client.get_tables(paths)
            _require_tiered(infos)
            ids = [info.table_id for info in infos]
            lease = lease_id(ti.dag_id, ti.run_id, ti.task_id, ids, TaskInstanceKey.of(ti).map_index)
            token = _token(client, lease, paths, duration_ms, submit=_submit_state(context), log=log)
    except FlussTieringError as error:
        if error.code in WRONG_TABLES:
            raise AirflowFailException(str(error)) from None
        if error.code in _REFUSED:
            raise AirflowFailException(f"Connection {fluss_conn_id!r}: {trouble(error)}") from None
        raise
    return LeaseHandle(lease, token, tuple(map(str, paths)), duration_ms, fluss_conn_id)


def _token(
    client: TieringClient,
    lease: str,
    paths: Sequence[TablePath],
    duration_ms: int,
    *,
    submit: SubmitState | None,
    log: Logger,
) -> int | None:
    """Return the attempt token, or None if the server has no leases. Tables are then tiered without a lease."""
    try:
        return continue_or_begin(client, lease, paths, duration_ms, submit=submit, log=log)
    except FlussTieringError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        log.warning("The server has no KV snapshot leases, so tables are tiered without a lease: %s", error)
        return None


def _require_tiered(tables: Sequence[TableInfo]) -> None:
    enabled = LAKE_ENABLED.key
    if not_tiered := [str(each.path) for each in tables if not is_tiered(each)]:
        raise AirflowFailException(
            f"{', '.join(not_tiered)}: expected tables that are tiered; create or alter them with {enabled}=true"
        )


def _submit_state(context: Context) -> SubmitState | None:
    """Return what the submit task of this lease may still do, or None if it runs after this task or is not known."""
    task: Any = context.get("task")
    if task is None or _is_round(task):
        return None
    key = TaskInstanceKey.of(context["ti"])
    states = []
    for submit in (task.dag.get_task(each) for each in sorted(task.downstream_task_ids)):
        if _is_submit(submit):
            watched = SubmitTask(replace(key, task_id=submit.task_id), claim_timeout=0)
            found = task_states(key.dag_id, key.run_id, submit.task_id)
            if watched.key.in_states(found) is None:
                return None
            states.append(watched.seen_in(found))
    return min(states, key=lambda each: each.ended, default=None)


def _is_submit(task: object) -> bool:
    # The operator for all submits under a lease of its own.
    return _submits(task, own_lease=False)


def _is_round(task: object) -> bool:
    return _submits(task, own_lease=True)


def _submits(task: object, *, own_lease: bool) -> bool:
    from airflow_provider_fluss.operators.tiering import FlussTieringSparkOperator  # noqa: PLC0415

    # A mapped operator tells its class.
    found: type = getattr(task, "operator_class", type(task))
    return issubclass(found, FlussTieringSparkOperator) and found.has_own_lease is own_lease


class FlussReleaseKvSnapshotLeaseOperator(BaseOperator):
    """Cancel what still runs under the attempt of an acquire task, release its lease, and decide the state of the run.

    Use this operator for a teardown task. It succeeds if there is nothing to release. If a newer attempt holds the
    lease, the operator leaves the lease alone and succeeds too.

    With `as_teardown(..., on_failure_fail_dagrun=True)` the last task of the run is this one, and its state is that of
    the run. It then fails if a task before it did not succeed and a table of the lease is not Tiered. So a run is green
    if its tables are tiered, also by an application whose task was killed. If all tasks before it succeeded and the
    server is away, it is skipped on its last try: the lease ends when it expires.

    Args:
        lease: The output of the acquire task. (templated)
    """

    template_fields: Sequence[str] = ("lease",)
    ui_color = "#d6ecf7"

    def __init__(self, *, lease: object, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.lease = lease

    def execute(self, context: Context) -> None:
        """Cancel the attempt and drop the lease. This reads the XCom of the acquire task and the states of tasks."""
        ti = context["ti"]
        decides = self.on_failure_fail_dagrun
        is_doubtful = decides and not self._all_succeeded(TaskInstanceKey.of(ti))
        try:
            lease = LeaseHandle.from_xcom(self.lease, ti.dag_id, ti.run_id)
        except MalformedLeaseError as error:
            raise AirflowFailException(f"There is no lease to release. {error}") from None
        except ValueError as error:
            if is_doubtful:
                raise AirflowFailException(f"There was no lease to tier under. {error}") from None
            self.log.warning("Nothing to release. %s", error)
            return
        judgement = None
        try:
            with FlussHook(lease.fluss_conn_id).get_client() as client:
                if is_doubtful:
                    outcome = client.lease_outcome(lease.lease_id, lease.attempt_token)
                    judgement = judge(outcome, lease.tables, lease.attempt_token)
                release_lease(client, lease, f"task {ti.task_id} of DAG run {ti.run_id} released the lease", self.log)
        except FlussTieringError as error:
            if is_doubtful or not decides or ti.try_number <= ti.max_tries:
                raise
            raise AirflowSkipException(
                f"Lease {lease.lease_id} was not released. It ends when it expires: {error.message}"
            ) from None
        if judgement is not None:
            _fail_unless_tiered(judgement)
            self.log.info("%s, so the run has done its work", judgement.message)

    def _all_succeeded(self, own: TaskInstanceKey) -> bool:
        """Return whether Airflow says so of all tasks before this one."""
        others = self.upstream_task_ids
        states = task_states(own.dag_id, own.run_id, *sorted(others))
        return all(replace(own, task_id=each).in_states(states) in _SUCCEEDED for each in others)


def _fail_unless_tiered(judgement: Judgement) -> None:
    if judgement.verdict is Verdict.TIERED:
        return
    unfinished = "" if judgement.verdict is not Verdict.WAITING else "Not all tables were tiered: "
    raise AirflowFailException(f"{unfinished}{judgement.message}")
