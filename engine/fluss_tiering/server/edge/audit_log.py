"""The audit log: a file of lines."""

from __future__ import annotations

import json
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from io import TextIOWrapper
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Final, NoReturn, TextIO

import structlog

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.edge.callers.tokens import PRIVATE

STDOUT: Final = "-"
"""The setting with which the lines go to standard output."""

_MAX_WAITING: Final = 10_000
_WARN_INTERVAL_S: Final = 60.0
_CLOSE_TIMEOUT_S: Final = 5.0

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
        max_waiting: The number of lines that may wait to be written.

    Raises:
        FlussTieringError: STORAGE if the file cannot be opened.
    """

    def __init__(self, path: str, on_lost: Callable[[int], None], *, max_waiting: int = _MAX_WAITING) -> None:
        self._path = path
        self._on_lost = on_lost
        self._waiting: queue.Queue[Line | None] = queue.Queue(max_waiting)
        self._lock = threading.Lock()
        self._lost_since_warning = 0
        self._warned_at: float | None = None
        try:
            self._handler = _Stdout(sys.stdout) if path == STDOUT else _File(path)
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
            self._lose("more lines wait than may")

    def close(self) -> None:
        """Write all lines that wait, and close the file. A disk that hangs is not waited for longer than 5 s."""
        if not self._thread.is_alive():
            self._handler.close()
            return
        deadline = time.monotonic() + _CLOSE_TIMEOUT_S
        try:
            self._waiting.put(None, timeout=_CLOSE_TIMEOUT_S)
        except queue.Full:
            return
        self._thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        while (line := self._waiting.get()) is not None:
            try:
                self._handler.emit(logging.makeLogRecord({"msg": json.dumps(line, default=str)}))
            except OSError as error:
                self._lose(error.strerror or str(error))
                # The next line opens the file anew, since somebody may have made room by deleting it.
                self._close_handler()
        self._close_handler()

    def _close_handler(self) -> None:
        # A full disk refuses the rest of a line once more.
        with suppress(OSError):
            self._handler.close()

    def _lose(self, reason: str) -> None:
        self._on_lost(1)
        now = time.monotonic()
        with self._lock:
            self._lost_since_warning += 1
            if self._warned_at is not None and now - self._warned_at < _WARN_INTERVAL_S:
                return
            lost, self._lost_since_warning, self._warned_at = self._lost_since_warning, 0, now
        logger.error("lines of the audit log are lost", lost=lost, reason=reason, path=self._path)


class _Raising(logging.Handler):
    def handleError(self, record: logging.LogRecord) -> NoReturn:  # noqa: N802 - the name of `logging`
        """Raise the error, which `logging` would print."""
        raise  # noqa: PLE0704 - it is called where the error is caught


class _File(_Raising, WatchedFileHandler):
    """A file that is opened anew after a rotation, and that only its owner reads."""

    def _open(self) -> TextIOWrapper:
        file = open(self.baseFilename, "a", encoding="ascii", opener=partial(os.open, mode=PRIVATE))  # noqa: SIM115 - the handler closes it
        if size := os.fstat(file.fileno()).st_size:
            with Path(self.baseFilename).open("rb") as written:
                written.seek(size - 1)
                if written.read(1) != b"\n":
                    # A full disk has cut the last line.
                    file.write("\n")
        return file


class _Stdout(_Raising, logging.StreamHandler[TextIO]):
    """Standard output."""
