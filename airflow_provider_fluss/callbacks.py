"""`on_failure_callback` for the failures after which no teardown runs.

The teardown releases the lease in most cases. It does not when it is itself killed or fails, or when the run is marked
failed by hand; then this does, as the callback of the task, of the DAG, or of both. Where nothing runs at all, the
lease expires.

Callbacks may run in the DAG processor, which loses all callbacks of a file when one of them hangs. So this reads the
acquire task's XCom and nothing else, gives each call to the server five seconds, all of them ten, and never raises.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fluss.hooks.fluss import FlussHook
from airflow_provider_fluss.lease import LeaseHandle
from airflow_provider_fluss.operators.lease import FlussAcquireKvSnapshotLeaseOperator
from airflow_provider_fluss.release import release_lease

if TYPE_CHECKING:
    from airflow.sdk import Context

CALL_TIMEOUT_SECONDS: Final = 5.0
TOTAL_TIMEOUT_SECONDS: Final = 10.0

logger = logging.getLogger(__name__)


def release_lease_on_failure(context: Context) -> None:
    """Release the leases of the failed task or, as a DAG's callback, of the failed run.

    For a task these are the leases of the acquire tasks that it follows, in a mapped task group those of its own map
    index; for a DAG run those of all its acquire tasks. It may run more than once. It is not for `on_retry_callback`:
    the next try may have begun.
    """
    try:
        leases = list(_leases(context))
    except Exception:
        logger.exception("The leases of the failed run could not be read; they end when they expire")
        return
    give_up_at = time.monotonic() + TOTAL_TIMEOUT_SECONDS
    for lease in leases:
        if time.monotonic() > give_up_at:
            logger.warning("No time is left to release lease %s; it ends when it expires", lease.lease_id)
        else:
            _release(lease, _reason(context))


def _release(lease: LeaseHandle, reason: str) -> None:
    try:
        with FlussHook(lease.fluss_conn_id, timeout=CALL_TIMEOUT_SECONDS).get_client() as client:
            release_lease(client, lease, reason, logger)
    except Exception:
        logger.exception("Lease %s could not be released; it ends when it expires", lease.lease_id)


def _leases(context: Context) -> Iterator[LeaseHandle]:
    of_dag = _is_of_dag(context)
    dag_id, run_id = context["dag"].dag_id, context["run_id"] if of_dag else context["ti"].run_id
    for value in _of_run(context) if of_dag else _of_task(context):
        if value is None:
            continue
        try:
            yield LeaseHandle.from_xcom(value, dag_id, run_id)
        except ValueError as error:
            logger.warning("Nothing to release. %s", error)


def _is_of_dag(context: Context) -> bool:
    """Whether Airflow calls for a DAG run: only then it gives a reason, and perhaps no task instance."""
    return "reason" in context


def _reason(context: Context) -> str:
    if _is_of_dag(context):
        return f"DAG run {context['run_id']} failed"
    return f"task {context['ti'].task_id} of DAG run {context['run_id']} failed"


def _of_run(context: Context) -> Iterator[Any]:
    from airflow.sdk.bases.xcom import BaseXCom  # noqa: PLC0415
    from airflow.sdk.execution_time.xcom import XCom  # noqa: PLC0415

    dag = context["dag"]
    for task in dag.tasks:
        if _is_acquire(task):
            # Of every map index; read without a task instance, since there may be none.
            yield from (
                XCom.get_all(
                    key=BaseXCom.XCOM_RETURN_KEY, dag_id=dag.dag_id, task_id=task.task_id, run_id=context["run_id"]
                )
                or ()
            )


def _of_task(context: Context) -> Iterator[Any]:
    ti = context["ti"]
    dag = context["dag"]
    failed = dag.get_task(ti.task_id)
    group = failed.get_closest_mapped_task_group()
    for task_id in failed.get_flat_relative_ids(upstream=True):
        task = dag.get_task(task_id)
        if not _is_acquire(task):
            continue
        acquire_group = task.get_closest_mapped_task_group()
        if acquire_group is not None and acquire_group is group:
            yield ti.xcom_pull(task_ids=task_id, map_indexes=ti.map_index)
        elif acquire_group is None and not task.is_mapped:
            yield ti.xcom_pull(task_ids=task_id, map_indexes=None)
        else:
            # The other instances' leases may be in use; the teardown, or the DAG's callback, releases them.
            logger.info("Task %s does not say which instance of %s it follows", ti.task_id, task_id)


def _is_acquire(task: object) -> bool:
    return issubclass(getattr(task, "operator_class", type(task)), FlussAcquireKvSnapshotLeaseOperator)
