"""Forked processes, in which gRPC does not work once it was used before the fork.

gRPC's own handling of `fork` is turned off by `fork_handling`. Without it, calls in a process that was only forked
would never return. They are refused instead.
"""

import os

from fluss_tiering.fork_handling import IS_HANDLED
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

_user: int | None = None
"""The process that was the first to use gRPC. A forked process inherits the number."""


def forked() -> bool:
    """Return whether a process that this one was forked from has used gRPC, so that it does not work here."""
    return _user not in (None, os.getpid()) and not IS_HANDLED


def require_own_process() -> None:
    """Check that gRPC works in this process, which uses it now.

    Raises:
        FlussTieringError: INVALID_REQUEST if it was forked from one that has used gRPC.
    """
    global _user  # noqa: PLW0603 - one for the process, as gRPC's own state
    if forked():
        raise FlussTieringError(
            ErrorCode.INVALID_REQUEST,
            f"this process {os.getpid()} was forked from process {_user}, which had used the client, so that gRPC does "
            "not work here: expected each process to make its first client after the fork; or start processes in "
            'another way, for example with multiprocessing.get_context("spawn")',
        )
    _user = _user or os.getpid()
