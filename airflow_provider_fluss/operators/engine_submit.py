"""What the operators share that submit an application of the engine to Spark, by whichever operator."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import AirflowException
from airflow.sdk import BaseOperator
from airflow.sdk.bases.operator import ExecutorSafeguard

from airflow_provider_fluss.operators.arguments import WrongArgumentError, shown
from airflow_provider_fluss.operators.spark_submit import SparkSubmit
from airflow_provider_fluss.operators.way_submit import WaySubmit
from airflow_provider_fluss.ways import Way

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import Context

DEFAULT_SPARK_CONN_ID: Final = "spark_default"
_OWN: Final = ("application", "application_args")
"""Arguments of `SparkSubmitOperator` that the operators set themselves."""
_OF_SPARK_SUBMIT: Final = {
    name: parameter
    for name, parameter in inspect.signature(SparkSubmitOperator.__init__).parameters.items()
    if parameter.kind is parameter.KEYWORD_ONLY and name not in ("conn_id", "name")
}

Resumed = tuple[str, dict[str, Any] | None]
"""The method with which a deferred operator goes on, and its arguments."""

_OF_WAY: Final = ("package", "conf", "arguments")
"""What is rendered of a way."""


class Submit(Protocol):
    """Makes the operator that submits an application."""

    where: str
    """Where it submits to, in words."""

    def check(self) -> None:
        """Refuse wrong arguments before anything is begun.

        Raises:
            AirflowFailException: An argument is wrong, or what submits is not installed.
        """

    def server_address(self, fluss_conn_id: str) -> str:
        """Return the address at which the driver finds the tiering server.

        Raises:
            UnreachableConnectionError: Airflow cannot look a connection up at present.
            AirflowFailException: A connection is not usable.
        """

    def prepare(self, application: Path, arguments: Sequence[str], fluss_conn_id: str) -> BaseOperator:
        """Return the operator, ready to be executed.

        Args:
            application: The file of the engine that is submitted.
            arguments: Its arguments.
            fluss_conn_id: The connection of the tiering server, with the credentials that the application needs.

        Raises:
            UnreachableConnectionError: Airflow cannot look a connection up at present.
            AirflowFailException: A connection is not usable, or the credentials cannot be given to the driver.
        """


def _taking_spark_arguments(init: Callable[..., None]) -> Callable[..., None]:
    """Let Airflow find the arguments of `SparkSubmitOperator` in the signature, for default_args and `partial`."""
    signature = inspect.signature(init)
    *own, kwargs = signature.parameters.values()
    init.__signature__ = signature.replace(parameters=[*own, *_OF_SPARK_SUBMIT.values(), kwargs])  # type: ignore[attr-defined]
    return init


class EngineSubmitOperator(BaseOperator):
    """Submit an application of the engine. This is the base of the operators that do so.

    It holds the operator that submits, and is killed, resumed after a deferral and timed out in its place.

    Args:
        name: The name of the Spark application, if `spark-submit` of this machine submits it. (templated)
        conn_id: The Spark connection for it. (templated)
        submit: The way to submit; None for `spark-submit` of this machine.
        kwargs: Other arguments of `SparkSubmitOperator` for it. (templated)

    Raises:
        ValueError: The application or its arguments were given, or arguments of `spark-submit` beside `submit`, which
            is a `Way`.
    """

    template_fields: Sequence[str] = ("conn_id", "name", "submit_arguments")
    template_fields_renderers: ClassVar[dict[str, str]] = {"submit_arguments": "json"}
    ui_color = "#fbe3d4"

    @_taking_spark_arguments
    def __init__(
        self, *, name: str, conn_id: str = DEFAULT_SPARK_CONN_ID, submit: Way | None = None, **kwargs: Any
    ) -> None:
        if given := sorted(kwargs.keys() & _OWN):
            raise ValueError(
                f"{', '.join(given)} cannot be set: {type(self).__name__} submits an application of its own"
            )
        arguments = {name: kwargs.pop(name) for name in _OF_SPARK_SUBMIT if name in kwargs}
        # What default_args have may be for other operators.
        for_all = {"conn_id": DEFAULT_SPARK_CONN_ID, **kwargs.get("default_args", {})}
        spark = {**arguments, "conn_id": conn_id}
        if submit is not None and (given := [name for name, value in spark.items() if value != for_all.get(name)]):
            raise ValueError(
                f"{', '.join(given)} cannot be set beside submit: give the arguments of the operator to the way"
            )
        if submit is not None and not isinstance(submit, Way):
            raise ValueError(f"submit is {shown(submit)}: expected a Way, for example of airflow_provider_fluss.ways")
        super().__init__(**kwargs)
        self.conn_id = conn_id
        self.name = name
        self.way = submit
        if submit is not None:
            arguments = {each: getattr(submit, each) for each in _OF_WAY}
        self.submit_arguments = arguments
        self._running: BaseOperator | None = None
        self._is_killed = False

    def make_submit(self) -> Submit:
        """Return what submits, with the rendered arguments.

        Raises:
            WrongArgumentError: The package of a way was rendered to nothing.
        """
        if self.way is not None:
            try:
                return WaySubmit(replace(self.way, **self.submit_arguments), self)
            except ValueError as error:
                raise WrongArgumentError(str(error)) from None
        return SparkSubmit(
            task_id=self.task_id,
            conn_id=self.conn_id,
            name=self.name,
            notice=self.notice_hook,
            **self.submit_arguments,
        )

    def notice_hook(self, hook: SparkSubmitHook) -> None:
        """Look at the hook that runs `spark-submit` on this machine, before it does."""

    def run_submit(self, operator: BaseOperator, context: Context, resumed: Resumed | None) -> None:
        """Execute the operator that submits, or resume it after its deferral.

        Args:
            operator: The operator that `Submit.prepare` returned.
            context: The context of the task.
            resumed: How the operator goes on; None if it was not deferred.

        Raises:
            TaskDeferred: The operator is deferred. Its trigger then resumes this task.
            AirflowException: The task was killed before.
        """
        self._running = operator
        if self._is_killed:
            raise AirflowException(f"Nothing was submitted: task {self.task_id} was killed")
        token = ExecutorSafeguard.tracker.set(operator)
        try:
            if resumed is None:
                operator.execute(context)
            else:
                operator.resume_execution(*resumed, context)
        finally:
            ExecutorSafeguard.tracker.reset(token)
        # After a time-out Airflow kills what still runs. What has ended cannot be.
        self._running = None

    def on_kill(self) -> None:
        """End the application, or do not begin it."""
        self._is_killed = True
        if self._running is not None:
            self._running.on_kill()
