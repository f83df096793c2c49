"""Submit an application of the engine by the operator of a way, on machines that Airflow does not know."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import BaseOperator

from airflow_provider_fluss.hooks.fluss import FlussHook
from airflow_provider_fluss.operators.arguments import WrongArgumentError
from airflow_provider_fluss.ways import Way
from fluss_tiering.model.submit_request import SubmitRequest
from fluss_tiering.model.tiering import TASK_VARIABLES

_PACKAGES: Final = "spark.jars.packages"
_SEPARATORS: Final = {"packages": ",", "py_files": ",", "sparkSubmitParameters": " "}
"""The texts that hold several values."""
_PROVIDER: Final = r"airflow\.providers\.((?:apache\.|cncf\.)?\w+)\."
"""Other packages of Airflow that have operators for Spark are named by the first part alone."""


class WaySubmit:
    """Makes the operator of a way.

    Args:
        way: The way, rendered.
        task: The task that holds the operator.
    """

    def __init__(self, way: Way, task: BaseOperator) -> None:
        self._way = way
        self._task = task
        self.where = way.operator.rpartition(".")[2] if isinstance(way.operator, str) else way.operator.__name__

    def check(self) -> None:
        """Make the operator once for nothing: it is not installed, or refuses an argument, before anything is begun.

        Raises:
            AirflowFailException: See `prepare`.
        """
        from fluss_tiering.spark import submit  # noqa: PLC0415

        self._make(self._request(submit.APPLICATION, ()))

    def server_address(self, fluss_conn_id: str) -> str:
        """Return the address of the server for a driver elsewhere.

        Raises:
            UnreachableConnectionError: Airflow cannot look the connection up at present.
            AirflowFailException: The connection is not usable, or has only an address of this machine.
        """
        from fluss_tiering.client.target import Target  # noqa: PLC0415 - gRPC is not needed to parse a DAG

        hook = FlussHook(fluss_conn_id)
        address = hook.get_driver_address()
        if address == hook.get_address() and Target.parse(address).is_loopback:
            raise AirflowFailException(
                f"A driver elsewhere does not find the tiering server at {address}, which is on this machine: expected "
                f"driver_server in the extra of connection {fluss_conn_id!r}, with the address that it has there"
            )
        return address

    def prepare(self, application: Path, arguments: Sequence[str], fluss_conn_id: str) -> BaseOperator:
        """Return the operator with what it runs. Of the connection it gets only what `driver_` fields and paths say.

        Raises:
            UnreachableConnectionError: Airflow cannot look the connection up at present.
            AirflowFailException: The operator is not installed or refuses its arguments, or the credentials of the
                server cannot be given to the driver.
        """
        task = {name: os.environ[name] for name in TASK_VARIABLES if name in os.environ}
        env = {**FlussHook(fluss_conn_id).get_driver_environment(), **task}
        return self._make(replace(self._request(application, arguments), env=env))

    def _request(self, application: Path, arguments: Sequence[str]) -> SubmitRequest:
        from fluss_tiering.spark import submit  # noqa: PLC0415

        way = self._way
        request = submit.submit_request(application, arguments, package=way.package, version=way.spark_version)
        # A template may render to a number.
        conf = {"spark.log.level": "WARN", **request.conf, **{key: str(value) for key, value in way.conf.items()}}
        more = conf.pop(_PACKAGES, None)
        # An image has them if the user leaves the setting empty.
        packages = () if more == "" else (*request.packages, *filter(None, (more or "").split(",")))
        return replace(request, conf=conf, packages=packages)

    def _make(self, request: SubmitRequest) -> BaseOperator:
        operator = self._way.operator
        if isinstance(operator, str):
            module, _, name = operator.rpartition(".")
            try:
                found = getattr(import_module(module), name)
                # A way refuses what is no operator.
                replace(self._way, operator=found)
            except (ImportError, AttributeError, ValueError) as error:
                package = _provider_package(operator) or "the provider that it belongs to"
                raise AirflowFailException(
                    f"{operator} cannot be imported ({error}): install {package} on the workers"
                ) from None
            operator = found
        try:
            arguments = merge(self._way.to_arguments(request), self._way.arguments)
            made: BaseOperator = operator(
                task_id=self._task.task_id, execution_timeout=self._task.execution_timeout, **arguments
            )
        except Exception as error:  # noqa: BLE001 - operators raise all kinds of errors
            said, *more = str(error).splitlines() or [type(error).__name__]
            # Airflow shows unknown arguments with their values, which may be secret.
            names = ", ".join(re.findall(r"'(\w+)':", "".join(more))) if said.endswith("were:") else ""
            raise WrongArgumentError(f"{operator.__name__} refuses its arguments: {said} {names}".rstrip()) from None
        if "durable" not in arguments and hasattr(made, "durable"):
            # It would take the application of an earlier try for that of this one, also after a clear.
            made.durable = False
        if (dag := self._task.get_dag()) is not None:
            # Not by the property, which would add it to the DAG.
            object.__setattr__(made, "_dag", dag)
        return made


def _provider_package(operator: str) -> str:
    """Return the package of Airflow that an operator belongs to, by its dotted name; empty if it is not Airflow's."""
    found = re.match(_PROVIDER, operator)
    return f"apache-airflow-providers-{found[1].replace('.', '-')}" if found else ""


def merge(ours: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of an operator: those of a request, and those that were given, which go before."""
    merged = {**ours, **given}
    for name in ours.keys() & given.keys():
        if isinstance(ours[name], Mapping) and isinstance(given[name], Mapping):
            merged[name] = merge(ours[name], given[name])
        elif isinstance(ours[name], list) and isinstance(given[name], list):
            merged[name] = [*given[name], *ours[name]]
        elif name in _SEPARATORS and given[name]:
            merged[name] = f"{ours[name]}{_SEPARATORS[name]}{given[name]}"
    return merged
