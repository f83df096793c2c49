"""Make the operator of each way with its real provider, and print what it would send, as arguments of spark-submit.

It reads, as JSON, for each way the folder of the package and the arguments of the application.
"""

from __future__ import annotations

import json
import os
import runpy
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import boto3
import jsonschema
from airflow.providers.cncf.kubernetes.operators.custom_object_launcher import CustomObjectLauncher
from airflow.sdk import BaseOperator
from google.cloud.dataproc_v1 import Batch
from moto import mock_aws

from airflow_provider_fluss import FlussTieringOperator
from fluss_tiering.spark.submit import APPLICATION

ROOT: Final = Path(__file__).resolve().parents[2]
DAGS: Final = ROOT / "dags" / "example_fluss_submit.py"
SPARK_APPLICATION: Final = ROOT / "tests" / "packaging" / "crds" / "SparkApplication.json"
"""The schema of what the operator of Spark on Kubernetes takes."""


def _options(conf: dict[str, str], py_files: list[str], environment: dict[str, str] | None = None) -> list[str]:
    conf = {**conf, **{f"driverEnv.{name}": value for name, value in (environment or {}).items()}}
    return ["--py-files", ",".join(py_files), *(text for each in conf.items() for text in ("--conf", "=".join(each)))]


def _spark_submit(operator: Any) -> list[str]:
    _, *command = operator._get_hook()._build_spark_submit_command(operator.application)
    return command


def _spark_kubernetes(operator: Any) -> list[str]:
    body = CustomObjectLauncher("tier", "spark", None, None, operator.template_body).body
    jsonschema.validate(body, json.loads(SPARK_APPLICATION.read_text()))
    spec = body["spec"]
    assert (spec["driver"]["cores"], spec["executor"]["instances"]) == (1, 2)
    environment = {each["name"]: each["value"] for each in spec["driver"]["env"]}
    options = _options(spec["sparkConf"], spec["deps"]["pyFiles"], environment)
    return [*options, spec["mainApplicationFile"], *spec["arguments"]]


def _emr_serverless(operator: Any) -> list[str]:
    with mock_aws():
        emr = boto3.client("emr-serverless")
        application = emr.create_application(name="a", type="SPARK", releaseLabel="emr-7.9.0")["applicationId"]
        operator.application_id = application
        operator.deferrable, operator.wait_for_completion = False, False
        job = operator.execute(_context(operator))
        driver = emr.get_job_run(applicationId=application, jobRunId=job)["jobRun"]["jobDriver"]["sparkSubmit"]
    return [*shlex.split(driver["sparkSubmitParameters"]), driver["entryPoint"], *driver["entryPointArguments"]]


def _emr_steps(operator: Any) -> list[str]:
    with mock_aws():
        emr = boto3.client("emr")
        instances = {"MasterInstanceType": "m5.large", "InstanceCount": 1, "KeepJobFlowAliveWhenNoSteps": True}
        operator.job_flow_id = emr.run_job_flow(Name="a", Instances=instances)["JobFlowId"]
        assert operator.wait_for_completion
        operator.wait_for_completion = False
        (step,) = operator.execute(_context(operator))
        config = emr.describe_step(ClusterId=operator.job_flow_id, StepId=step)["Step"]["Config"]
    assert config["Jar"] == "command-runner.jar"
    program, *command = config["Args"]
    assert program == "spark-submit"
    return command


def _dataproc_batch(operator: Any) -> list[str]:
    batch = Batch(operator.batch)  # refuses a field that it does not know
    assert batch.runtime_config.version == "2.3"
    job = batch.pyspark_batch
    options = _options(dict(batch.runtime_config.properties), list(job.python_file_uris))
    return [*options, job.main_python_file_uri, *job.args]


def _livy(operator: Any) -> list[str]:
    body = operator.hook.build_post_batch_body(**operator.spark_params)
    return [*_options(body["conf"], body["pyFiles"]), body["file"], *body["args"]]


def _databricks_submit_run(operator: Any) -> list[str]:
    body = operator._get_merged_json()
    operator._validate_merged_json(body)
    task, cluster = body["spark_python_task"], body["new_cluster"]
    assert cluster["num_workers"] == 2
    assert [next(iter(each)) for each in body["libraries"]] == ["pypi", "maven"]
    options = _options(cluster["spark_conf"], [], cluster["spark_env_vars"])
    return [*options[2:], task["python_file"], *task["parameters"]]


def _context(operator: BaseOperator) -> Any:
    ti = SimpleNamespace(dag_id="d", task_id="tier", run_id="r", map_index=-1, try_number=1, xcom_push=lambda **_: None)
    return {"ti": ti, "task_instance": ti, "task": operator, "dag": None, "run_id": "r"}


SENT: Final[dict[str, Callable[[Any], list[str]]]] = {
    "spark_submit": _spark_submit,
    "spark_kubernetes": _spark_kubernetes,
    "emr_serverless": _emr_serverless,
    "emr_steps": _emr_steps,
    "dataproc_batch": _dataproc_batch,
    "livy": _livy,
    "databricks_submit_run": _databricks_submit_run,
}
"""What the operator of each way sends. Those of AWS send it to an emulator."""


def main() -> None:
    """Print the arguments of spark-submit for each way, as JSON on the last line."""
    asked = json.load(sys.stdin)
    sent = {}
    ways = runpy.run_path(str(DAGS))["WAYS"]
    assert ways.keys() == SENT.keys() == asked.keys()
    for name, way in ways.items():
        os.environ["AIRFLOW_CTX_DAG_ID"] = name
        task = FlussTieringOperator(task_id="tier", tables=["a.b"], submit=replace(way, package=asked[name]["package"]))
        submit = task.make_submit()
        submit.check()
        operator = submit.prepare(APPLICATION, asked[name]["arguments"], "fluss_default")
        sent[name] = SENT[name](operator)
    print(json.dumps(sent))


if __name__ == "__main__":
    main()
