"""Submit an application of the engine by the `spark-submit` of this machine."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import AirflowFailException, AirflowNotFoundException
from airflow.sdk import BaseHook

from airflow_provider_fluss.hooks.fluss import FlussHook
from airflow_provider_fluss.missing_connection import UnreachableConnectionError, check_id, is_not_defined
from airflow_provider_fluss.operators.arguments import WrongArgumentError, shown
from airflow_provider_fluss.operators.submit_log import keep_levels
from fluss_tiering.model.error_text import mask_secrets
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.tiering import TASK_VARIABLES

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import Connection, Context

    from airflow_provider_fluss.hooks.security import ConnectionSecurity

_DEFAULTS: Final = {"spark.log.level": "WARN"}
"""Settings that the application does not need, but that keep the log of a task readable."""
_WRONG_JAVA: Final = ("UnsupportedClassVersionError", "JAVA_HOME is not set", "Unable to locate a Java Runtime")

_BEFORE_OUTPUT: Final = ("Cannot execute", "No driver id is known")
"""How an error of Spark's provider begins in which the end of the output of `spark-submit` follows."""

_ERROR_LINE: Final = re.compile(r"ERROR fluss_tiering: (.+)")
"""An error that an application logged. Its last one is the cause of its end."""
_QUIET: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (?:DEBUG|INFO|WARNING) \S+: ")
"""What stands before a message that is no error in the log of an application."""


_TEXTS: Final = ("files", "py_files", "jars", "packages", "exclude_packages", "repositories", "name")
"""Arguments of `SparkSubmitOperator` that are texts."""

_WITHOUT_PYTHON_DRIVERS: Final = ("spark://", "local")
"""How masters begin with which Spark refuses deploy mode cluster for applications in Python."""


class SparkSubmit(SparkSubmitOperator):
    """Submit an application of the engine by `spark-submit`, for a task that holds this.

    Args:
        conn_id: The Spark connection.
        notice: Called with the hook before it runs `spark-submit`.
        durable: Whether a try attaches to the application of an earlier one, as `SparkSubmitOperator` does by default.
            It would then submit nothing if that one has ended well, even if a person cleared the task.
        kwargs: Other arguments of `SparkSubmitOperator`.
    """

    def __init__(
        self, *, conn_id: str, notice: Callable[[SparkSubmitHook], None], durable: bool | None = None, **kwargs: Any
    ) -> None:
        if durable:
            kwargs["durable"] = True
        super().__init__(conn_id=conn_id, **kwargs)
        if not durable:
            # As an argument it would be warned of below Airflow 3.3.
            self.durable = False
        self.conn_id = conn_id
        self.where = f"Spark connection {conn_id!r}"
        self._notice = notice
        self._in_cluster = False
        self._security: ConnectionSecurity | None = None
        self._driver_environment: dict[str, str] = {}
        self._spark_environment: dict[str, str] = {}

    def prepare(self, application: Path, arguments: Sequence[str], fluss_conn_id: str) -> Self:
        """Set what is submitted, and complete the settings of Spark with those that the application needs.

        Given settings win. Jars and packages are added to those that the application needs. In cluster deploy mode the
        engine is sent along, unless `py_files` is given.

        Args:
            application: The file that is submitted.
            arguments: Its arguments.
            fluss_conn_id: The connection of the tiering server, with the credentials that the application needs.

        Raises:
            UnreachableConnectionError: Airflow cannot look a connection up at present.
            AirflowFailException: The Spark connection is not defined, Spark is not installed here or has a version that
                is not supported, has no deploy mode cluster for Python with this master, or the credentials of the
                server cannot be given to a driver on the cluster.
        """
        from fluss_tiering.spark import submit  # noqa: PLC0415

        connection = self._spark_connection()
        self._in_cluster = self._deploys_to_cluster(connection)
        version = None if self._in_cluster else self._choose_spark()
        self._require_program(connection)
        hook = FlussHook(fluss_conn_id)
        if self._in_cluster:
            # On the command line, where Spark's provider puts these, are paths only.
            self.env_vars = {**(self.env_vars or {}), **hook.get_driver_environment()} or None
        self._security = hook.get_security()
        self._conn_id = self.conn_id
        self.application = str(application)
        self.application_args = list(arguments)
        if self.py_files is None and self._in_cluster:
            # The driver runs on the cluster, too. The folder lasts as long as this operator.
            self._archive_folder = tempfile.TemporaryDirectory(prefix="fluss-tiering-")
            self.py_files = str(submit.make_archive(Path(self._archive_folder.name)))
        try:
            needed = {**_DEFAULTS, **submit.spark_conf(driver_is_here=not self._in_cluster, version=version)}
        except FlussTieringError as error:
            raise AirflowFailException(error.message) from None
        if self._in_cluster:
            needed |= _named_task(os.environ)
        given: dict[str, Any] = self.conf or {}
        lists = {"spark.jars": self.jars, "spark.jars.packages": self.packages}
        joined = {key: _joined(option, given.get(key), needed.get(key)) for key, option in lists.items()}
        self.conf = {**needed, **given, **{key: value for key, value in joined.items() if value}}
        # On the command line these options would replace the jars and packages of the settings.
        self.jars = self.packages = None
        return self

    def execute(self, context: Context) -> None:
        """Run `spark-submit` for what `prepare` has set. A driver on this machine finds its credentials in files."""
        with tempfile.TemporaryDirectory(prefix="fluss-tiering-") as folder:
            if self._security is not None:
                variable = f"AIRFLOW_CONN_{self._security.conn_id.upper()}"
                # Airflow may have read the connection, with its token, from there.
                self._driver_environment = {variable: ""} if variable in os.environ else {}
                if not self._in_cluster:
                    self._driver_environment |= self._security.driver_environment(Path(folder))
            super().execute(context)

    def _get_hook(self) -> SparkSubmitHook:
        hook = super()._get_hook()
        keep_levels(hook)
        self._notice(hook)
        build = hook._build_spark_submit_command  # noqa: SLF001 - env_vars would be on the command line for YARN

        def build_with_environment(application: str) -> list[str]:
            command: list[str] = build(application)
            if environment := {**self._spark_environment, **self._driver_environment}:
                hook._env = {**(hook._env or {}), **environment}  # noqa: SLF001
            return command

        hook._build_spark_submit_command = build_with_environment  # type: ignore[method-assign] # noqa: SLF001
        return hook

    def check(self) -> None:
        """Refuse arguments of a type for which Spark's provider fails with an error of its insides.

        Call it before `prepare`, which takes them for right.

        Raises:
            WrongArgumentError: An argument is not of the type that is expected.
            UnusableConnectionError: The id of the Spark connection is no text.
        """
        check_id("conn_id", self.conn_id)
        if self.conf is not None and not isinstance(self.conf, Mapping):
            raise WrongArgumentError(f"conf is {shown(self.conf)}: expected a dict of Spark settings")
        for name in _TEXTS:
            value = getattr(self, name, None)
            if value is not None and not isinstance(value, str):
                raise WrongArgumentError(f"{name} is {shown(value)}: expected a text, with commas between several")

    def server_address(self, fluss_conn_id: str) -> str:
        """Return the address at which the driver finds the tiering server.

        Raises:
            UnreachableConnectionError: Airflow cannot look a connection up at present.
            AirflowFailException: See `prepare`.
        """
        hook = FlussHook(fluss_conn_id)
        in_cluster = self._deploys_to_cluster(self._spark_connection())
        return hook.get_driver_address() if in_cluster else hook.get_address()

    def _deploys_to_cluster(self, connection: Connection) -> bool:
        """Return whether the driver runs on the cluster. As in Spark, an option goes before a setting.

        Raises:
            AirflowFailException: Spark would refuse to run a driver in Python there.
        """
        option = self._deploy_mode or connection.extra_dejson.get("deploy-mode")
        if (option or (self.conf or {}).get("spark.submit.deployMode")) != "cluster":
            return False
        master = _master(connection)
        if master.startswith(_WITHOUT_PYTHON_DRIVERS):
            raise AirflowFailException(
                f"Spark runs no Python driver in deploy mode cluster with the master {master!r}: expected YARN or "
                f"Kubernetes. Set deploy mode client for Spark connection {self.conn_id!r}"
            )
        return True

    def _spark_connection(self) -> Connection:
        try:
            return BaseHook.get_connection(self.conn_id)
        except AirflowNotFoundException as error:
            if not is_not_defined(self.conn_id):
                raise UnreachableConnectionError(self.conn_id) from error
            # Spark's provider would submit to YARN.
            raise AirflowFailException(
                f"Connection {self.conn_id!r} is not defined: add a connection of the type 'spark' with this id"
            ) from None

    def _require_program(self, connection: Connection) -> None:
        program = self._spark_binary or connection.extra_dejson.get("spark-binary", "spark-submit")
        if shutil.which(program, path={**(self.env_vars or {}), **self._spark_environment}.get("PATH")) is None:
            raise AirflowFailException(
                f"{program} is not on the PATH of this worker: install Spark, for example by "
                "`pip install 'airflow-provider-fluss[spark]'`, or set spark.pyspark.python to the Python that has it"
            )

    def _choose_spark(self) -> str | None:
        """Choose the Spark of the Python that `spark.pyspark.python` names, and return its version.

        Return None, and choose nothing, if that has no Spark of its own, as beside one from an archive.
        """
        from fluss_tiering.spark.versions import spark_version_of  # noqa: PLC0415

        python = Path(str((self.conf or {}).get("spark.pyspark.python")))
        if not (python.is_absolute() and python.with_name("spark-submit").exists()):
            return None
        version = spark_version_of(str(python))
        if version is not None:
            path = (self.env_vars or {}).get("PATH") or os.environ.get("PATH", os.defpath)
            self._spark_environment = {
                "PATH": f"{python.parent}{os.pathsep}{path}",
                # Those of this worker would go before.
                "SPARK_HOME": "",
                "PYSPARK_PYTHON": str(python),
                "PYSPARK_DRIVER_PYTHON": str(python),
            }
        return version


def _named_task(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings with which a driver on YARN or Kubernetes learns which task submitted it, for its rounds."""
    prefixes = ("spark.yarn.appMasterEnv", "spark.kubernetes.driverEnv")
    return {
        f"{prefix}.{name}": environment[name] for prefix in prefixes for name in TASK_VARIABLES if name in environment
    }


def _master(connection: Connection) -> str:
    """Return the master that Spark's provider makes of a connection, without its port."""
    host = connection.host or ""
    is_whole = connection.conn_type == "spark" and host and ("://" in host or not connection.port)
    return host if is_whole else f"{connection.conn_type}://{host}"


def spark_cause(error: Exception) -> str:
    """Return the line of Spark's last output, or of another operator's error, that tells why Spark failed.

    It has no secrets.

    Raises:
        AirflowFailException: Spark did not run at all, because of the Java that it found.
    """
    message = mask_secrets(str(error))
    lines = [line.strip() for line in message.splitlines() if line.strip()] or [type(error).__name__]
    if not lines[0].startswith(_BEFORE_OUTPUT):
        return logged_error(message) or lines[0]
    if wrong := next((line for line in lines if any(each in line for each in _WRONG_JAVA)), None):
        raise AirflowFailException(
            f"Spark needs Java 17 or newer on this worker: set JAVA_HOME for it ({wrong})"
        ) from error
    output = lines[1:] or lines
    # What the application logged below the level of an error may name one, but did not end it.
    loud = [line for line in output if not _QUIET.match(line)]
    telling = (line for line in loud if "Exception" in line or "Error" in line or "error:" in line)
    return logged_error(message) or next(telling, _QUIET.sub("", output[-1]))


def logged_error(output: str) -> str | None:
    """Return the last error that an application logged, or None if its output holds none.

    Args:
        output: The end of the application's output, or an error message that contains it.
    """
    found = _ERROR_LINE.findall(output)
    return found[-1].strip() if found else None


def _joined(*lists: str | None) -> str:
    return ",".join(each for each in lists if each)
