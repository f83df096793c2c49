"""The audit log: a file of lines, and how many refused calls get a line of their own."""

from __future__ import annotations

import asyncio
import json
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, TypeVar

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


REFUSED_LINES: Final = 100
"""The number of refused calls of one kind that have lines of their own, until the others are summarized."""
_SUMMARY_S: Final = 10.0
_MAX_KINDS: Final = 1000

ToldT = TypeVar("ToldT")


@dataclass(slots=True)
class _Kind(Generic[ToldT]):
    told: ToldT
    count: int = 0


class RefusedCalls(Generic[ToldT]):
    """Counts the refused calls of each kind that get no line of their own. It is used on the event loop only.

    Args:
        summarize: Writes a line about further refused calls of a kind: what is told of the kind, and how many.
    """

    def __init__(self, summarize: Callable[[ToldT, int], None]) -> None:
        self._summarize = summarize
        self._kinds: dict[str, _Kind[ToldT]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def has_line(self, kind: str, told: ToldT) -> bool:
        """Count a refused call, and return whether it gets a line of its own.

        Args:
            kind: What counts as the same kind, for example the name of the caller.
            told: What is told of the kind.
        """
        if kind not in self._kinds and len(self._kinds) >= _MAX_KINDS:
            self.flush()
        seen = self._kinds.setdefault(kind, _Kind(told))
        seen.count += 1
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_SUMMARY_S, self.flush)
        return seen.count <= REFUSED_LINES

    def flush(self) -> None:
        """Write the lines about the calls that had none of their own, and begin anew."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        kinds, self._kinds = self._kinds, {}
        for each in kinds.values():
            if each.count > REFUSED_LINES:
                self._summarize(each.told, each.count - REFUSED_LINES)
