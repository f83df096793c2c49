"""Files that are read again when they change, without a restart."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from stat import S_ISREG, S_IWOTH
from threading import Lock
from typing import Final, Generic, TypeVar

import structlog

from fluss_tiering.model.errors import ErrorCode, FlussTieringError

_LOOK_S: Final = 1.0
"""The time between two looks at the files, in seconds."""

ContentT_co = TypeVar("ContentT_co", covariant=True)
Stamp = tuple[tuple[int, ...] | None, ...]

logger = structlog.get_logger(__name__)


class WatchedFiles(Generic[ContentT_co]):
    """What some files hold. It looks at them once in a second at most. Any thread may call it.

    Whoever may write such a file may make calls, so that a file which everybody may write is refused.

    Attributes:
        what: What the files hold, for the log and for metrics.

    Args:
        what: What the files hold.
        read: Reads them.
        monotonic: A clock in seconds that never goes back.

    Raises:
        FlussTieringError: The errors of `read`; INVALID_REQUEST if everybody may write a file.
    """

    def __init__(
        self,
        what: str,
        paths: Sequence[Path],
        read: Callable[[], ContentT_co],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.what = what
        self._paths = tuple(paths)
        self._read = read
        self._monotonic = monotonic
        self._lock = Lock()
        self._stamp = self._present_stamp()
        self._content = self._read_safely()
        self._next_look = monotonic() + _LOOK_S
        self._error: str | None = None

    @property
    def content(self) -> ContentT_co:
        """What the files held when they could be read last."""
        with self._lock:
            if self._monotonic() >= self._next_look:
                self._next_look = self._monotonic() + _LOOK_S
                self._look()
            return self._content

    @property
    def is_in_force(self) -> bool:
        """Whether the present content of the files counts, and not an older one because they cannot be read."""
        _ = self.content
        return self._error is None

    def _look(self) -> None:
        stamp = self._present_stamp()
        if stamp == self._stamp and self._error is None:
            return
        try:
            content = self._read_safely()
        except FlussTieringError as error:
            # What was read last stays valid: a file that is damaged, or half written, must not lock everybody out.
            if error.message != self._error:
                logger.error(
                    "files cannot be read again: what was read before stays valid", of=self.what, error=error.message
                )
            self._error = error.message
            return
        mended = {} if self._error is None else {"mended": True}
        self._content, self._stamp, self._error = content, stamp, None
        logger.info("files read again", of=self.what, **mended)

    def _read_safely(self) -> ContentT_co:
        self._check_rights()
        return self._read()

    def _check_rights(self) -> None:
        for path in self._paths:
            try:
                mode = path.stat().st_mode
            except OSError:
                # Reading the file says what is wrong.
                continue
            if not S_ISREG(mode):
                # To open another kind of file may wait for ever, and all calls with it.
                raise FlussTieringError(
                    ErrorCode.INVALID_REQUEST, f"{path} is no regular file: expected the file with {self.what}"
                )
            if mode & S_IWOTH:
                raise FlussTieringError(
                    ErrorCode.INVALID_REQUEST,
                    f"everybody on this machine may write {path} (mode {mode & 0o777:04o}), and so could give "
                    f"themselves any role: run `chmod o-w {path}`, and check what {self.what} hold",
                )

    def _present_stamp(self) -> Stamp:
        return tuple(map(_stamp_of, self._paths))


def _stamp_of(path: Path) -> tuple[int, ...] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode
