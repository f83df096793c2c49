"""The judges that need no JVM, in a process of their own: one of them may end its process, which is then an answer."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlparse

import pyarrow as pa

import judges
from fluss_tiering.model.table import OFFSET_COLUMN

_ANSWER_S: Final = 300.0
_LASTING: Final = ("INTERNAL Error", "FATAL Error")


class JudgeRefusedError(Exception):
    """A judge did not read a table."""


class JudgeProcess:
    """Reads lake tables by DuckDB, ClickHouse and pyiceberg.

    Attributes:
        seconds: How long the questions about one table are asked; None for no limit.
    """

    def __init__(self) -> None:
        self.seconds: float | None = None
        self._context = multiprocessing.get_context("spawn")
        self._process: Any = None
        self._connection: Connection | None = None

    def read(self, judge: str, metadata: str, columns: Sequence[str]) -> pa.Table:
        """Return these columns of all rows.

        Raises:
            JudgeRefusedError: The judge cannot read them.
        """
        return self._ask(("read", judge, metadata, list(columns)))

    def count(self, judge: str, metadata: str, asked: Sequence[tuple[judges.Predicate, bool]]) -> list[int | str]:
        """Return how many rows fulfil each predicate, which is pushed down or not; the text of a refusal instead.

        Questions at the end have no answer if the time was over.
        """
        answer: list[int | str] = self._ask(("count", judge, metadata, (list(asked), self.seconds)))
        return answer

    def stop(self) -> None:
        """End the process, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None

    def _ask(self, request: tuple[Any, ...]) -> Any:
        if self._process is None or not self._process.is_alive():
            self._connection, other = self._context.Pipe()
            self._process = self._context.Process(target=_serve, args=(other,), daemon=True)
            self._process.start()
            other.close()
        assert self._connection is not None
        try:
            self._connection.send(request)
            if not self._connection.poll(_ANSWER_S):
                self.stop()
                raise JudgeRefusedError(f"no answer within {_ANSWER_S:g} s")
            answer = self._connection.recv()
        except (EOFError, OSError) as error:
            self.stop()
            raise JudgeRefusedError("it ended its process") from error
        said = [answer] if isinstance(answer, str) else answer if isinstance(answer, list) else []
        if any(error in str(each) for each in said for error in _LASTING):
            # After these, DuckDB refuses all further questions in the same process.
            self.stop()
        if isinstance(answer, str):
            raise JudgeRefusedError(answer)
        return answer


def _serve(connection: Connection) -> None:
    while True:
        try:
            do, judge, metadata, what = connection.recv()
        except (EOFError, KeyboardInterrupt):
            return
        try:
            answer: Any = _read(judge, metadata, what) if do == "read" else _counts(judge, metadata, what)
        except Exception as error:  # noqa: BLE001 - each judge has errors of its own
            answer = _text(error)
        connection.send(answer)


def _read(judge: str, metadata: str, columns: list[str]) -> pa.Table:
    return judges.read(judge, metadata, columns=columns)


def _counts(
    judge: str, metadata: str, what: tuple[list[tuple[judges.Predicate, bool]], float | None]
) -> list[int | str]:
    asked, seconds = what
    counts: list[int | str] = []
    has_offsets = f'"{OFFSET_COLUMN}"' in Path(urlparse(metadata).path).read_text()
    began = time.monotonic()
    for predicate, push_down in asked:
        if seconds is not None and time.monotonic() - began > seconds:
            break
        try:
            columns = [OFFSET_COLUMN if has_offsets else predicate.path[0]]
            counts.append(judges.read(judge, metadata, predicate, columns=columns, push_down=push_down).num_rows)
        except Exception as error:  # noqa: BLE001 - each judge has errors of its own
            counts.append(_text(error))
    return counts


def _text(error: BaseException) -> str:
    return " ".join(str(error).split())[:800] or type(error).__name__
