"""Tries of a rewrite that others may disturb: rounds, compactions, repairs and DELETEs can change the same files."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from py4j.protocol import Py4JError
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from fluss_tiering.lake.iceberg.java import is_conflict, java_error_text, lake_errors
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath

P = ParamSpec("P")
R = TypeVar("R")

_DESCRIPTION: Final = re.compile(r"Generic(?:Data|Delete)File\{.*?file_path=([^,}]*).*\}")
"""Iceberg's description of a file, which is long."""

logger = logging.getLogger(__name__)


class ConflictTries:
    """Tries the steps of a rewrite of one lake table, each again if others changed the same files meanwhile.

    Args:
        path: The table.
        verb: What is done with the table: "compact" or "repair".
        attempts: How often each step is tried.
        remedy: What the user may do, for the error message.

    Attributes:
        conflicts: How often others changed the same files.
    """

    def __init__(self, path: TablePath, verb: str, attempts: int, remedy: str) -> None:
        self._path = path
        self._doing = f"{verb} the lake table {path}"
        self._verb = verb
        self._attempts = attempts
        self._remedy = remedy
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
                    f"could not {self._doing}: rounds or others changed the same files in each of {self._attempts} "
                    f"attempts; {self._remedy} ({_reason(error)})",
                ) from None

    def _count_conflict(self, attempt: RetryCallState) -> None:
        self.conflicts += 1
        failure = None if attempt.outcome is None else attempt.outcome.exception()
        logger.warning(
            "rounds or others changed %s while it was tried to %s it, attempt %d of %d begins: %s",
            self._path,
            self._verb,
            attempt.attempt_number + 1,
            self._attempts,
            _reason(failure) if isinstance(failure, Py4JError) else failure,
        )


def _reason(error: Py4JError) -> str:
    return _DESCRIPTION.sub(r"\1", java_error_text(error))
