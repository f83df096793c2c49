"""How errors of the source reach Spark's users: one line, with the error's code, and no Python traceback."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from fluss_tiering.model.errors import FlussTieringError

_HIDE_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"
"""Read by pyspark when it tells the JVM of an error, in the same process, which ends there."""


class FlussSourceError(Exception):
    """`[CODE] what was wrong: what was expected; what to do`."""


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turns our errors into such ones."""
    try:
        yield
    except FlussTieringError as error:
        os.environ[_HIDE_TRACEBACK] = "1"
        raise FlussSourceError(f"[{error.code}] {error.message}") from None
