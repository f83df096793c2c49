"""Lines of `spark-submit` in the log of a task, at the levels that they were written with."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

_LEVEL: Final = re.compile(
    r"""(?x)
    (?: \d{4}-\d\d-\d\d | \d\d/\d\d/\d\d ) \s \d\d:\d\d:\d\d (?: ,\d{3} )? \s+  # as Python and as Spark write it
    (DEBUG | INFO | WARN(?:ING)? | ERROR | CRITICAL | FATAL) \b
    """
)
_LEVELS: Final = {
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "WARNING": logging.WARNING,
    "ERROR": logging.ERROR,
    "CRITICAL": logging.CRITICAL,
    "FATAL": logging.CRITICAL,
}
_ALWAYS_SAID: Final = re.compile(
    r"""(?x)
    WARNING:\ Using\ incubator\ modules
    | Using\ Spark's\ default\ log4j
    | Setting\ (?:default|Spark)\ log\ level\ to
    | To\ adjust\ logging\ level\ use
    | NativeCodeLoader:\ Unable\ to\ load\ native-hadoop
    | Utils:\ Your\ hostname,
    | Utils:\ Set\ SPARK_LOCAL_IP
    | Utils:\ Service\ 'SparkUI'\ could\ not\ bind
    | SparkContext:\ (?:Running\ Spark|OS\ info|Java)\ version | SparkContext:\ OS\ info
    | FairSchedulableBuilder:\ A\ job\ was\ submitted\ with\ scheduler\ pool
    """
)
"""What Spark says in every run, whatever happens."""


def keep_levels(hook: SparkSubmitHook) -> None:
    """Let the hook log each line of `spark-submit` at the line's own level.

    The hook logs all of them as information, so that nobody could filter the log of a task by its level. What Spark
    says in every run is logged for debugging only.
    """
    hook._log = _LevelledLog(hook.log)  # type: ignore[assignment] # noqa: SLF001 - the hook has no other way


class _LevelledLog:
    """A logger whose method `info` looks for the level of a line."""

    def __init__(self, log: Any) -> None:  # noqa: ANN401 - of the standard library or of structlog
        self._log = log

    def info(self, line: object, *args: object, **options: Any) -> None:
        """Log a line at its own level."""
        if args or not isinstance(line, str):
            self._log.info(line, *args, **options)
            return
        # A line may hold what the logger would take for a placeholder.
        self._log.log(level_of(line), "%s", line, **options)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the logger has
        return getattr(self._log, name)


def level_of(line: str) -> int:
    """Return the level at which a line of `spark-submit` is logged."""
    if _ALWAYS_SAID.search(line):
        return logging.DEBUG
    found = _LEVEL.match(line)
    return _LEVELS[found.group(1)] if found else logging.INFO
