"""The `on_failure_callback` that releases leases after failures for which Airflow runs no teardown.

The teardown task releases the lease in most cases. It cannot do so when it fails itself, when it is killed, or when
somebody marks the run as failed. In these cases this callback releases the lease. It can be the callback of the task,
of the DAG, or of both. If no callback runs either, the lease expires.

Airflow may run callbacks in the DAG processor. If one callback of a DAG file hangs there, the DAG processor loses all
callbacks of that file. This callback therefore reads nothing but leases, ends after five seconds, and never raises.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from airflow.providers.common.compat.sdk import AirflowSensorTimeout, AirflowTaskTimeout

from airflow_provider_fluss.attempt import release_lease
from airflow_provider_fluss.hooks.fluss import FlussHook
from airflow_provider_fluss.lease import ONE_TASK_KEY, LeaseHandle
from airflow_provider_fluss.operators.lease import FlussAcquireKvSnapshotLeaseOperator
from airflow_provider_fluss.submit_task import ENDED
from airflow_provider_fluss.task_states import TaskInstanceKey, task_states, within

if TYPE_CHECKING:
    from airflow.sdk import Context

TIMEOUT_SECONDS: Final = 5.0
"""How long the callback may take, for all leases together."""

_TIMEOUTS: Final = (AirflowSensorTimeout, AirflowTaskTimeout)

logger = logging.getLogger(__name__)


def release_lease_on_failure(context: Context) -> None:
    """Release the leases of a failed task or, if it is the callback of a DAG, of the failed run.

    For a task with a `lease` argument, as the submit task and the sensor have one, the callback releases this lease: a
    newer attempt of the acquire task is left alone. It does the same for a task of `FlussTieringOperator`. For another
    task, it releases the leases of the acquire tasks that are upstream of it. In a mapped task group, it releases only
    the leases of the task's own map index. For a DAG run, it releases the leases of all acquire tasks and of all tasks
    of `FlussTieringOperator`, unless a person has cleared the run since it failed. The callback may run more than once.
    Do not use it as `on_retry_callback`, because the next try may have begun already.

    Args:
        context: The context that Airflow passes to callbacks.
    """
    within(TIMEOUT_SECONDS, lambda: _release_all(context), logger, "Releasing the leases of what failed")


def _release_all(context: Context) -> None:
    give_up_at = time.monotonic() + TIMEOUT_SECONDS
    try:
        leases = list(leases_of(context))
        # If nothing was cleared until these leases were read, they are those of the failed run. Their attempt tokens
        # then keep a newer attempt safe.
        if leases and _is_dag_callback(context) and _was_cleared(context):
            logger.info("Run %s was cleared after it failed, so its leases are left alone", context["run_id"])
            return
    except Exception:
        logger.exception("The leases of the failed run could not be read. They end when they expire")
        return
    for lease in leases:
        left = give_up_at - time.monotonic()
        if left <= 0:
            logger.warning("No time is left to release lease %s. It ends when it expires", lease.lease_id)
        else:
            _release(lease, _reason(context), left)


def _release(lease: LeaseHandle, reason: str, timeout: float) -> None:
    try:
        with FlussHook(lease.fluss_conn_id, timeout=timeout).get_client() as client:
            release_lease(client, lease, reason, logger)
    except Exception:
        logger.exception("Lease %s could not be released. It ends when it expires", lease.lease_id)


def leases_of(context: Context) -> Iterator[LeaseHandle]:
    """Yield the leases of the failed task or run that a callback is called for."""
    for value in lease_values(context):
        try:
            yield lease_of(value, context)
        except ValueError as error:
            logger.warning("Nothing to release. %s", error)


def lease_values(context: Context) -> Iterator[Any]:
    """Yield the XComs of the leases that a callback is called for. They may be malformed."""
    values = _xcoms_of_run(context) if _is_dag_callback(context) else _leases_of_task(context)
    return (value for value in values if value is not None)


def lease_of(value: object, context: Context) -> LeaseHandle:
    """Return the lease in this XCom of the failed task or run.

    Raises:
        ValueError: The value is not a lease. The message says what was found.
    """
    run_id = context["run_id"] if _is_dag_callback(context) else context["ti"].run_id
    return LeaseHandle.from_xcom(value, context["dag"].dag_id, run_id)


def _is_dag_callback(context: Context) -> bool:
    """Return whether this is the callback of a DAG run. Only then does Airflow pass a reason."""
    return "reason" in context


def _reason(context: Context) -> str:
    if _is_dag_callback(context):
        return f"DAG run {context['run_id']} failed"
    ended = "timed out" if isinstance(context.get("exception"), _TIMEOUTS) else "failed"
    return f"task {context['ti'].task_id} of DAG run {context['run_id']} {ended}"


def _xcoms_of_run(context: Context) -> Iterator[Any]:
    from airflow.sdk.bases.xcom import BaseXCom  # noqa: PLC0415
    from airflow.sdk.execution_time.xcom import XCom  # noqa: PLC0415

    dag, run_id = context["dag"], context["run_id"]
    for task in dag.tasks:
        key = BaseXCom.XCOM_RETURN_KEY if _is_acquire(task) else ONE_TASK_KEY
        if _is_acquire(task) or _is_one_task(task):
            # This reads every map index. It uses no task instance, because the context of a DAG run may have none.
            yield from XCom.get_all(key=key, dag_id=dag.dag_id, task_id=task.task_id, run_id=run_id) or ()


def _was_cleared(context: Context) -> bool:
    """Return whether a person cleared the failed run before this callback of it runs, so that its leases live again.

    A failed run has no task that may still run, except for the teardown after a person marked it.
    """
    dag, run_id = context["dag"], context["run_id"]
    others = [task.task_id for task in dag.tasks if not task.is_teardown]
    return any(state not in ENDED for state in task_states(dag.dag_id, run_id, *others).values())


def _leases_of_task(context: Context) -> Iterator[Any]:
    own = getattr(context.get("task"), "lease", None)
    # In the DAG processor the argument is not rendered.
    return iter([own]) if isinstance(own, Mapping) else _xcoms_of_task(context)


def _xcoms_of_task(context: Context) -> Iterator[Any]:
    ti = context["ti"]
    dag = context["dag"]
    failed = dag.get_task(ti.task_id)
    if _is_one_task(failed):
        # Its process was killed, so that it could not release its lease itself.
        yield ti.xcom_pull(task_ids=ti.task_id, key=ONE_TASK_KEY, map_indexes=TaskInstanceKey.of(ti).index)
        return
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
            # Other instances may still use their leases. The teardown or the callback of the DAG releases those.
            logger.info(
                "Task %s failed, but the leases of %s are not released here, because other instances may use them",
                ti.task_id,
                task_id,
            )


def _is_acquire(task: object) -> bool:
    return issubclass(getattr(task, "operator_class", type(task)), FlussAcquireKvSnapshotLeaseOperator)


def _is_one_task(task: object) -> bool:
    from airflow_provider_fluss.operators.round import FlussTieringOperator  # noqa: PLC0415 - loads Spark's provider

    return issubclass(getattr(task, "operator_class", type(task)), FlussTieringOperator)
