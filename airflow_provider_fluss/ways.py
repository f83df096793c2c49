"""Ways to submit the application: which operator runs it, and what it gets of a request.

Each way needs the folder that `fluss-tiering package --to` fills, at an address that drivers can read. The provider
that an operator belongs to is needed only where tasks run.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from airflow.sdk import BaseOperator

from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.submit_request import SubmitRequest
from fluss_tiering.spark.versions import packages

_PACKAGES: Final = "spark.jars.packages"
_YARN: Final = "spark.yarn.appMasterEnv."
_KUBERNETES: Final = "spark.kubernetes.driverEnv."
_EMR_SERVERLESS: Final = "spark.emr-serverless.driverEnv."
_DATAPROC: Final = "spark.dataproc.driverEnv."


@dataclass(frozen=True)
class Way:
    """A way to submit: an operator, and how it gets what it runs.

    Attributes:
        operator: The class of the operator, or its dotted name, which is imported when the task runs.
        to_arguments: Returns the arguments of the operator for a request. It has no side effects.
        package: The address of the folder that `fluss-tiering package --to` has filled. (templated)
        spark_version: The version of Spark there, as "3.5".
        conf: Settings of Spark that are added to those of the application, or replace them. `spark.jars.packages` is
            added to, or, if it is empty, leaves all packages out, for an image that has Iceberg. (templated)
        arguments: The other arguments of the operator. A dict is merged with that of the request, a list goes before
            it, and `packages`, `py_files` and `sparkSubmitParameters` are added to it. (templated) Beside `partial`,
            tasks whose output they take must be set upstream by hand.

    Raises:
        ValueError: The operator, the package, the version, the settings or the arguments are of another type, or the
            version is not supported.
    """

    operator: type[BaseOperator] | str
    to_arguments: Callable[[SubmitRequest], Mapping[str, Any]] = field(repr=False)  # its address would be shown
    package: str
    spark_version: str
    conf: Mapping[str, str] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, expected in (("package", "an address such as s3://bucket/fluss-tiering"), ("spark_version", "'3.5'")):
            value = getattr(self, name)
            if not isinstance(value, str) or not value:
                raise ValueError(f"{name} is {value!r}: expected {expected}, as a text")
        try:
            packages(self.spark_version)
        except FlussTieringError as error:
            raise ValueError(error.message) from None
        for name in ("conf", "arguments"):
            value = getattr(self, name)
            if not isinstance(value, Mapping):
                raise ValueError(f"{name} is {value!r}: expected a dict")  # noqa: TRY004 - as Airflow tells arguments
        known = self.operator
        if not isinstance(known, str) and not (isinstance(known, type) and issubclass(known, BaseOperator)):
            raise ValueError(f"{known!r} is no operator: expected a class of BaseOperator")  # noqa: TRY004 - see above


def spark_submit(package: str, spark_version: str, conf: Mapping[str, str] | None = None, **arguments: Any) -> Way:
    """Return the way by `SparkSubmitOperator` with the files of `package`, for clusters that run drivers themselves."""
    operator = "airflow.providers.apache.spark.operators.spark_submit.SparkSubmitOperator"
    return Way(operator, _spark_submit, package, spark_version, conf or {}, arguments)


def spark_kubernetes(package: str, spark_version: str, conf: Mapping[str, str] | None = None, **arguments: Any) -> Way:
    """Return the way by `SparkKubernetesOperator`, as a SparkApplication, whose rest may stand in `template_spec`."""
    operator = "airflow.providers.cncf.kubernetes.operators.spark_kubernetes.SparkKubernetesOperator"
    return Way(operator, _spark_kubernetes, package, spark_version, conf or {}, arguments)


def emr_serverless(package: str, spark_version: str, conf: Mapping[str, str] | None = None, **arguments: Any) -> Way:
    """Return the way by `EmrServerlessStartJobOperator`."""
    operator = "airflow.providers.amazon.aws.operators.emr.EmrServerlessStartJobOperator"
    return Way(operator, _emr_serverless, package, spark_version, conf or {}, arguments)


def emr_steps(package: str, spark_version: str, conf: Mapping[str, str] | None = None, **arguments: Any) -> Way:
    """Return the way by `EmrAddStepsOperator`. Steps that are given run before."""
    operator = "airflow.providers.amazon.aws.operators.emr.EmrAddStepsOperator"
    return Way(operator, _emr_steps, package, spark_version, conf or {}, arguments)


def dataproc_batch(package: str, spark_version: str, conf: Mapping[str, str] | None = None, **arguments: Any) -> Way:
    """Return the way by `DataprocCreateBatchOperator`. The rest of the batch may stand in `batch`."""
    operator = "airflow.providers.google.cloud.operators.dataproc.DataprocCreateBatchOperator"
    return Way(operator, _dataproc_batch, package, spark_version, conf or {}, arguments)


def livy(package: str, spark_version: str, conf: Mapping[str, str] | None = None, **arguments: Any) -> Way:
    """Return the way by `LivyOperator`."""
    operator = "airflow.providers.apache.livy.operators.livy.LivyOperator"
    return Way(operator, _livy, package, spark_version, conf or {}, arguments)


def databricks_submit_run(
    package: str, spark_version: str, conf: Mapping[str, str] | None = None, **arguments: Any
) -> Way:
    """Return the way by `DatabricksSubmitRunOperator`, on a cluster that lasts as long as the run.

    Raises:
        ValueError: `new_cluster` is missing.
    """
    if "new_cluster" not in arguments:
        raise ValueError(
            "new_cluster is missing: a cluster that exists cannot be given the settings of Spark and the environment "
            "of the driver. Give a dict such as {'spark_version': '15.4.x-scala2.12', 'num_workers': 2}"
        )
    operator = "airflow.providers.databricks.operators.databricks.DatabricksSubmitRunOperator"
    return Way(operator, _databricks_submit_run, package, spark_version, conf or {}, arguments)


def _spark_submit(request: SubmitRequest) -> dict[str, Any]:
    return {
        "name": "fluss-tiering",
        "application": request.main_file,
        "application_args": list(request.args),
        "py_files": ",".join(request.py_files),
        "packages": ",".join(request.packages),
        "conf": dict(request.conf),
        # Spark's provider also gives them to a driver on YARN or Kubernetes.
        "env_vars": dict(request.env),
    }


def _spark_kubernetes(request: SubmitRequest) -> dict[str, Any]:
    application = {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "spec": {
            "type": "Python",
            "pythonVersion": "3",
            "mode": "cluster",
            "restartPolicy": {"type": "Never"},
            "mainApplicationFile": request.main_file,
            "arguments": list(request.args),
            "sparkConf": dict(request.conf),
            "deps": {"pyFiles": list(request.py_files), "packages": list(request.packages)},
            "driver": {"env": [{"name": name, "value": value} for name, value in request.env.items()]},
            "executor": {},
        },
    }
    # A retry would take the driver of an earlier try for its own, even one that has ended.
    return {"template_spec": {"spark": application}, "reattach_on_restart": False}


def _emr_serverless(request: SubmitRequest) -> dict[str, Any]:
    return {
        "job_driver": {
            "sparkSubmit": {
                "entryPoint": request.main_file,
                "entryPointArguments": list(request.args),
                "sparkSubmitParameters": shlex.join(_options(request, _EMR_SERVERLESS)),
            }
        }
    }


def _emr_steps(request: SubmitRequest) -> dict[str, Any]:
    options = ["--deploy-mode", "cluster", *_options(request, _YARN)]
    step = {
        "Name": "fluss-tiering",
        "ActionOnFailure": "CONTINUE",
        "HadoopJarStep": {
            "Jar": "command-runner.jar",
            "Args": ["spark-submit", *options, request.main_file, *request.args],
        },
    }
    return {"steps": [step], "wait_for_completion": True}


def _dataproc_batch(request: SubmitRequest) -> dict[str, Any]:
    return {
        "batch": {
            "pyspark_batch": {
                "main_python_file_uri": request.main_file,
                "python_file_uris": list(request.py_files),
                "args": list(request.args),
            },
            "runtime_config": {"properties": _conf(request, _DATAPROC)},
        }
    }


def _livy(request: SubmitRequest) -> dict[str, Any]:
    return {
        "file": request.main_file,
        "args": list(request.args),
        "py_files": list(request.py_files),
        "conf": _conf(request, _YARN, _KUBERNETES),
        "polling_interval": 30,
    }


def _databricks_submit_run(request: SubmitRequest) -> dict[str, Any]:
    # A Python task has no option for archives, but Python imports from a file on its path.
    path = ":".join([*request.py_files, "$PYTHONPATH"])
    return {
        "spark_python_task": {"python_file": request.main_file, "parameters": list(request.args)},
        "new_cluster": {"spark_conf": dict(request.conf), "spark_env_vars": {**request.env, "PYTHONPATH": path}},
        "libraries": [{"maven": {"coordinates": each}} for each in request.packages],
    }


def _conf(request: SubmitRequest, *prefixes: str) -> dict[str, str]:
    """Return the settings of a request, with its packages and its environment among them."""
    env = {f"{prefix}{name}": value for prefix in prefixes for name, value in request.env.items()}
    return {**request.conf, _PACKAGES: ",".join(request.packages), **env}


def _options(request: SubmitRequest, prefix: str) -> list[str]:
    conf = [text for key, value in _conf(request, prefix).items() for text in ("--conf", f"{key}={value}")]
    return ["--py-files", ",".join(request.py_files), *conf]
