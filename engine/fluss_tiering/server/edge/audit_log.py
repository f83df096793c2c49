"""The audit log: a file of lines."""

from __future__ import annotations

import json
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import structlog

from fluss_tiering.model.errors import ErrorCode, FlussTieringError

STDOUT: Final = "-"
"""The setting with which the lines go to standard output."""

_MAX_WAITING: Final = 10_000
_MAX_AT_ONCE: Final = 500
_WARN_INTERVAL_S: Final = 60.0
_CLOSE_TIMEOUT_S: Final = 5.0
_MODE: Final = 0o600
_STDOUT_FD: Final = 1

logger = structlog.get_logger(__name__)

Line = Mapping[str, object]


class AuditLog:
    """Appends lines to the audit log.

    Each line is a JSON object in ASCII, so that no name can begin another line. It is handed to the operating system
    at once. A line that cannot be written is lost: calls go on, the lost lines are counted, and the server's log says
    so once a minute. After a rotation, when the path names another file or none, the file is opened anew.

    Args:
        path: The path of the file, or `-` for standard output.
        on_lost: Called with the number of lines that were lost. The call may come from any thread.
        monotonic: A clock in seconds that never goes back.
        max_waiting: The number of lines that may wait to be written.

    Raises:
        FlussTieringError: STORAGE if the file cannot be opened.
    """

    def __init__(
        self,
        path: str,
        on_lost: Callable[[int], None],
        *,
        monotonic: Callable[[], float] = time.monotonic,
        max_waiting: int = _MAX_WAITING,
    ) -> None:
        self._path = None if path == STDOUT else Path(path).absolute()
        self._on_lost = on_lost
        self._monotonic = monotonic
        self._waiting: queue.Queue[Line | None] = queue.Queue(max_waiting)
        self._lock = threading.Lock()
        self._lost_since_warning = 0
        self._warned_at: float | None = None
        self._reason = ""
        self._torn = False
        self._fd = -1
        try:
            self._open()
        except OSError as error:
            raise FlussTieringError(
                ErrorCode.STORAGE,
                f"cannot write the audit log {path}: {error.strerror}; check the path and the rights of the folder, or "
                "start the server without audit-log",
            ) from error
        self._thread = threading.Thread(target=self._run, name="audit log", daemon=True)

    def start(self) -> None:
        """Begin to write lines."""
        self._thread.start()

    def write(self, line: Line) -> None:
        """Write a line soon. This never waits."""
        try:
            self._waiting.put_nowait(line)
        except queue.Full:
            self._lose(1, "more lines wait than may")

    def close(self) -> None:
        """Write all lines that wait, and close the file. A disk that hangs is not waited for longer than 5 s."""
        if not self._thread.is_alive():
            self._shut()
            return
        deadline = time.monotonic() + _CLOSE_TIMEOUT_S
        try:
            self._waiting.put(None, timeout=_CLOSE_TIMEOUT_S)
        except queue.Full:
            return
        self._thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        ended = False
        while not ended:
            lines = [self._waiting.get()]
            while len(lines) < _MAX_AT_ONCE:
                try:
                    lines.append(self._waiting.get_nowait())
                except queue.Empty:
                    break
            ended = None in lines
            self._append([line for line in lines if line is not None])
        self._shut()

    def _append(self, lines: list[Line]) -> None:
        texts = [json.dumps(line, default=str).encode() + b"\n" for line in lines]
        written = 0
        try:
            self._follow_rotation()
            if self._torn:
                # What a full disk cut off becomes a line of its own, which is not JSON.
                self._torn = os.write(self._fd, b"\n") != 1
            data = memoryview(b"".join(texts))
            while written < len(data):
                written += os.write(self._fd, data[written:])
        except OSError as error:
            whole = 0
            while whole < len(texts) and written >= len(texts[whole]):
                written -= len(texts[whole])
                whole += 1
            self._torn = self._torn or written > 0
            self._lose(len(texts) - whole, error.strerror or str(error))
        else:
            self._warn()

    def _follow_rotation(self) -> None:
        if self._path is None:
            return
        if self._fd >= 0:
            try:
                present = self._path.stat()
            except FileNotFoundError:
                present = None
            opened = os.fstat(self._fd)
            if present is not None and (present.st_dev, present.st_ino) == (opened.st_dev, opened.st_ino):
                return
            self._shut()
        self._open()

    def _open(self) -> None:
        if self._path is None:
            self._fd = os.dup(_STDOUT_FD)
            return
        self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _MODE)
        self._torn = False

    def _shut(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _lose(self, count: int, reason: str) -> None:
        if not count:
            return
        self._on_lost(count)
        with self._lock:
            self._lost_since_warning += count
            self._reason = reason
        self._warn()

    def _warn(self) -> None:
        now = self._monotonic()
        with self._lock:
            lost = self._lost_since_warning
            if not lost or (self._warned_at is not None and now - self._warned_at < _WARN_INTERVAL_S):
                return
            self._lost_since_warning, self._warned_at = 0, now
        logger.error(
            "lines of the audit log are lost", lost=lost, reason=self._reason, path=str(self._path or "standard output")
        )
