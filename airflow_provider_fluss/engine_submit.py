"""What the operators share that submit an application of the engine to Spark."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

if TYPE_CHECKING:
    from pathlib import Path

_ERROR_LINE: Final = re.compile(r"ERROR fluss_tiering: (.+)")
"""An error that an application logged. Its last one is the cause of its end."""


class EngineSubmitOperator(SparkSubmitOperator):
    """Submit an application of the engine. This is the base of the operators that do so.

    Args:
        conn_id: The Spark connection. (templated)
        name: The name of the Spark application. (templated)
        kwargs: Other arguments of `SparkSubmitOperator`.

    Raises:
        ValueError: The application or its arguments were given.
    """

    template_fields: Sequence[str] = (*SparkSubmitOperator.template_fields, "conn_id")
    ui_color = "#fbe3d4"

    def __init__(self, *, conn_id: str = "spark_default", name: str, **kwargs: Any) -> None:
        if given := kwargs.keys() & {"application", "application_args"}:
            raise ValueError(
                f"{', '.join(sorted(given))} cannot be set: {type(self).__name__} submits an application of its own"
            )
        super().__init__(conn_id=conn_id, name=name, **kwargs)
        self.conn_id = conn_id

    def prepare(self, application: Path, arguments: Sequence[str]) -> None:
        """Set what is submitted, and complete the settings of Spark with those that the application needs.

        Given settings win. Jars and packages are added to those that the application needs.
        """
        from fluss_tiering.spark import submit  # noqa: PLC0415

        self._conn_id = self.conn_id
        self.application = str(application)
        self.application_args = list(arguments)
        needed = submit.spark_conf()
        given: dict[str, Any] = self.conf or {}
        lists = {"spark.jars": self.jars, "spark.jars.packages": self.packages}
        joined = {key: _joined(option, given.get(key), needed.get(key)) for key, option in lists.items()}
        self.conf = {**needed, **given, **{key: value for key, value in joined.items() if value}}
        # On the command line these options would replace the jars and packages of the settings.
        self.jars = self.packages = None


def logged_error(output: str) -> str | None:
    """Return the last error that an application logged, or None if its output holds none.

    Args:
        output: The end of the application's output, or an error message that contains it.
    """
    found = _ERROR_LINE.findall(output)
    return found[-1].strip() if found else None


def _joined(*lists: str | None) -> str:
    return ",".join(each for each in lists if each)
