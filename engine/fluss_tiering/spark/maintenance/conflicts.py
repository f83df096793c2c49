"""Tries of a rewrite that others may disturb: compactions, repairs and DELETEs can change the same files."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from py4j.protocol import Py4JError
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from fluss_tiering.lake.iceberg.java import is_conflict, java_error_text, lake_errors
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath

P = ParamSpec("P")
R = TypeVar("R")

logger = logging.getLogger(__name__)


class ConflictTries:
    """Tries the steps of a rewrite of one lake table, each again if others changed the same files meanwhile.

    Args:
        path: The table.
        verb: What is done with the table: "compact" or "repair".
        attempts: How often each step is tried.
        quiet: When the user may try again, for the error message.

    Attributes:
        conflicts: How often others changed the same files.
    """

    def __init__(self, path: TablePath, verb: str, attempts: int, quiet: str) -> None:
        self._path = path
        self._doing = f"{verb} the lake table {path}"
        self._verb = verb
        self._attempts = attempts
        self._quiet = quiet
        self.conflicts = 0

    def run(self, step: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a step and return its result.

        Raises:
            FlussTieringError: LAKE_CONFLICT if others changed the same files in each attempt; the errors of
                `lake_errors`.
        """
        retrying = Retrying(
            retry=retry_if_exception(is_conflict),
            wait=wait_random_exponential(multiplier=0.5, max=10),
            stop=stop_after_attempt(self._attempts),
            before_sleep=self._count_conflict,
            reraise=True,
        )
        with lake_errors(self._doing):
            try:
                return retrying(step, *args, **kwargs)
            except Py4JError as error:
                if not is_conflict(error):
                    raise
                raise FlussTieringError(
                    ErrorCode.LAKE_CONFLICT,
                    f"could not {self._doing}: others changed the same files in each of {self._attempts} attempts; try "
                    f"again when {self._quiet} ({java_error_text(error)})",
                ) from None

    def _count_conflict(self, attempt: RetryCallState) -> None:
        self.conflicts += 1
        failure = None if attempt.outcome is None else attempt.outcome.exception()
        reason = java_error_text(failure) if isinstance(failure, Py4JError) else failure
        logger.warning("others changed %s, the attempt to %s it starts again: %s", self._path, self._verb, reason)
