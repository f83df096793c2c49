"""Errors of the data source as Spark's users see them: one line with the error's code, and no Python traceback."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from fluss_tiering.model.errors import FlussTieringError

_HIDE_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"
"""The environment variable that pyspark reads when it reports an error to the JVM, before the process ends."""


class FlussSourceError(Exception):
    """An error with the text `[CODE] what was wrong: what was expected; what to do`."""


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turn each FlussTieringError of the `with` block into a FlussSourceError."""
    try:
        yield
    except FlussTieringError as error:
        os.environ[_HIDE_TRACEBACK] = "1"
        raise FlussSourceError(f"[{error.code}] {error.message}") from None
