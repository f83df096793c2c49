"""The tasks of the main DAG for the tables that a run names, with the tries and the time-outs that a test needs."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import AirflowException
from airflow.providers.standard.operators.bash import BashOperator
from airflow.providers.standard.triggers.file import FileTrigger
from airflow.sdk import BaseOperator, dag

from airflow_provider_fluss import Way
from airflow_provider_fluss.callbacks import release_lease_on_failure
from airflow_provider_fluss.operators.lease import (
    FlussAcquireKvSnapshotLeaseOperator,
    FlussReleaseKvSnapshotLeaseOperator,
)
from airflow_provider_fluss.operators.tiering import FlussTieringSparkOperator
from airflow_provider_fluss.sensors.status import FlussTieringStatusSensor
from fluss_tiering.model.submit_request import SubmitRequest
from fluss_tiering.spark.submit import JARS_VARIABLE
from fluss_tiering.spark.versions import spark_version


class DeferredOperator(BaseOperator):
    """Starts a job that outlives the task, as a platform does, and is deferred until the job has ended."""

    def __init__(self, *, command: str, env: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.command = command
        self.env = env

    def execute(self, context: Any) -> None:
        folder = Path(tempfile.mkdtemp(prefix="job-"))
        script = f"{self.command} >{folder}/log 2>&1 && touch {folder}/succeeded; touch {folder}/ended"
        subprocess.Popen(["sh", "-c", script], env={**os.environ, **self.env}, start_new_session=True)
        trigger = FileTrigger(filepath=f"{folder}/ended", poke_interval=1)
        self.defer(trigger=trigger, method_name="complete", kwargs={"folder": str(folder)})

    def complete(self, context: Any, folder: str, event: Any = None) -> None:
        if not Path(folder, "succeeded").exists():
            raise AirflowException(f"The job failed: {Path(folder, 'log').read_text()[-2000:]}")


def command(request: SubmitRequest) -> str:
    """Return what a platform runs, with the jars that are here."""
    conf = {**request.conf, "spark.jars": os.environ.get(JARS_VARIABLE, "")}
    options = [text for name, value in conf.items() for text in ("--conf", f"{name}={value}")]
    files = ["--py-files", ",".join(request.py_files), *options, request.main_file, *request.args]
    return shlex.join(["spark-submit", "--master", "local[6,4]", *files])


PACKAGE = os.environ.get("WAYS_TO_END_PACKAGE", "not packed")
BY_BASH = Way(
    BashOperator,
    lambda request: {"bash_command": command(request), "env": dict(request.env), "append_env": True},
    PACKAGE,
    spark_version(),
)
DEFERRED = Way(
    DeferredOperator, lambda request: {"command": command(request), "env": request.env}, PACKAGE, spark_version()
)
PARAMS = {"tables": [], "fluss_conn_id": "fluss_default", "spark_conn_id": "spark_default"}


def way(
    dag_id: str,
    *,
    retries: int = 2,
    deferrable: bool = True,
    wait_seconds: float = 3600,
    submit_by: Way | None = None,
    submit_limit: timedelta | None = None,
) -> None:
    @dag(
        dag_id=dag_id,
        schedule=None,
        params=PARAMS,
        render_template_as_native_obj=True,
        default_args={
            "retries": retries,
            "retry_delay": timedelta(seconds=20),
            "on_failure_callback": release_lease_on_failure,
        },
        on_failure_callback=release_lease_on_failure,
    )
    def tasks() -> None:
        acquire = FlussAcquireKvSnapshotLeaseOperator(
            task_id="acquire", tables="{{ params.tables }}", fluss_conn_id="{{ params.fluss_conn_id }}"
        )
        arguments = {"conn_id": "{{ params.spark_conn_id }}"} if submit_by is None else {"submit": submit_by}
        submit = FlussTieringSparkOperator(
            task_id="submit",
            lease=acquire.output,
            execution_timeout=submit_limit,
            **arguments,
        )
        wait = FlussTieringStatusSensor(
            task_id="wait",
            lease=acquire.output,
            submit_task_id=submit.task_id,
            deferrable=deferrable,
            poke_interval=1,
            timeout=wait_seconds,
        )
        release = FlussReleaseKvSnapshotLeaseOperator(task_id="release", lease=acquire.output)
        acquire >> [submit, wait] >> release.as_teardown(setups=acquire, on_failure_fail_dagrun=True)

    tasks()


way("way")
way("way_with_one_try", retries=0)
way("way_that_pokes", deferrable=False)
way("way_that_times_out", retries=0, wait_seconds=40)
way("way_by_bash", submit_by=BY_BASH)
way("way_by_bash_that_times_out", retries=0, submit_by=BY_BASH, submit_limit=timedelta(seconds=90))
way("way_that_is_deferred", submit_by=DEFERRED)
