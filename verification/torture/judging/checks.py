"""Comparisons of the lake with the model, by every judge: all rows, and the answers to many questions."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import judges
from fluss_tiering.model.table import Column
from torture.arrow_values import comparable, rows_of
from torture.judging.limits import column_limit, question_limit, refusal_limit, table_limit
from torture.judging.process import JudgeProcess, JudgeRefusedError
from torture.makers.predicates import Question, questions
from torture.model import TableModel
from torture.processes import CommandFailedError
from torture.values import Value

_SHOWN: Final = 3
_ASKED_OF_SPARK: Final = 24


class WrongError(Exception):
    """A judge or a promise says that something is wrong.

    Attributes:
        kind: What is wrong, in a few words that are the same for the same defect.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


@dataclass
class Tally:
    """What was compared and left out so far."""

    comparisons: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Add up the seconds of the block."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[what] += time.monotonic() - began  # type: ignore[assignment]


@dataclass(frozen=True)
class Readable:
    """A lake table, as the judges reach it.

    Attributes:
        columns: The columns.
        metadata: The path of the newest metadata file.
        has_deletes: Whether it may have equality deletes.
        keys: The names and the values of the columns that its partitions are made of.
        judges: The judges without a JVM.
        spark_read: Reads columns by Spark into an Arrow table.
        spark_count: Counts the rows of each predicate by Spark.
        on_s3: Whether its files are on S3.
        has_vectors: Whether it may have deletion vectors.
    """

    columns: Sequence[Column]
    metadata: str
    has_deletes: bool
    keys: Mapping[str, Sequence[str]]
    judges: JudgeProcess
    spark_read: Callable[[Sequence[str]], Any]
    spark_count: Callable[[Sequence[str]], list[int]]
    on_s3: bool = False
    has_vectors: bool = False

    def limit_of(self, judge: str) -> str | None:
        """Return why a judge cannot read the table at all; None if it can."""
        if judge == judges.CLICKHOUSE and self.has_vectors:
            return "ClickHouse reads no deletion vectors"
        return table_limit(judge, self.columns, has_deletes=self.has_deletes, keys=self.keys, on_s3=self.on_s3)


def check_lake(lake: Readable, model: TableModel, tally: Tally, seed: int, *, spark: bool, most: int) -> None:
    """Compare a lake table with the model.

    Args:
        lake: The lake table.
        model: What it must hold.
        tally: Where comparisons are counted.
        seed: What the questions come from.
        spark: Whether Spark reads, too, which takes longer.
        most: How many questions are asked. With none, DuckDB alone reads, and only the first column.

    Raises:
        WrongError: a judge sees something else.
    """
    rows = model.lake_rows()
    if not most:
        _compare_rows(judges.DUCKDB, replace(lake, columns=lake.columns[:1]), rows, tally)
        return
    chosen = [judges.DUCKDB, judges.CLICKHOUSE, judges.PYICEBERG, *([judges.SPARK] if spark else [])]
    asked = questions(lake.columns, rows, random.Random(f"questions/{seed}"), most)
    expected = [sum(map(question.holds, rows)) for question in asked]
    for judge in chosen:
        limit = lake.limit_of(judge)
        if limit is not None:
            tally.left_out[limit] += 1
            continue
        try:
            with tally.timed(f"{judge} reads"):
                _compare_rows(judge, lake, rows, tally)
            with tally.timed(f"{judge} answers"):
                _compare_answers(judge, lake, rows, asked, expected, tally)
        except (JudgeRefusedError, CommandFailedError) as error:
            limit = refusal_limit(judge, str(error))
            if limit is None:
                raise WrongError(f"{judge} refuses: {str(error)[:60]}", str(error)) from error
            tally.left_out[limit] += 1


def _compare_rows(judge: str, lake: Readable, rows: Sequence[Sequence[Value]], tally: Tally) -> None:
    compared = []
    for place, column in enumerate(lake.columns):
        limit = column_limit(judge, column, [row[place] for row in rows])
        if limit is None:
            compared.append(place)
        else:
            tally.left_out[f"column: {limit}"] += 1
    columns = [lake.columns[place] for place in compared]
    names = [column.name for column in columns or lake.columns[:1]]
    table = lake.spark_read(names) if judge == judges.SPARK else lake.judges.read(judge, lake.metadata, names)
    tally.comparisons[f"{judge} rows"] += table.num_rows
    if not columns:
        found = Counter({(): table.num_rows})
    else:
        found = Counter(comparable(row) for row in rows_of(columns, table))
    expected = Counter(comparable(tuple(row[place] for place in compared)) for row in rows)
    compare(judge, names, expected, found)


def compare(judge: str, names: Sequence[str], expected: Counter[Hashable], found: Counter[Hashable]) -> None:
    """Compare the rows that a judge has read with those of the model.

    Raises:
        WrongError: they are not the same.
    """
    missing, surplus = expected - found, found - expected
    if missing or surplus:
        raise WrongError(
            f"{judge} reads other rows",
            f"{sum(missing.values())} are missing, {sum(surplus.values())} are too many; columns {list(names[:8])}; "
            f"missing {_shown(missing)}; too many {_shown(surplus)}",
        )


def check_scan(columns: Sequence[Column], table: Any, model: TableModel, tally: Tally) -> None:
    """Compare the rows that a scan of the Fluss table has read with the model.

    Raises:
        WrongError: the rows are others.
    """
    found = Counter(comparable(row) for row in rows_of(columns, table))
    expected = Counter(comparable(row) for row in model.stored_rows())
    tally.comparisons["rows of scans"] += table.num_rows
    if found != expected:
        raise WrongError(
            "a scan reads other rows",
            f"missing {_shown(expected - found)}; too many {_shown(found - expected)}",
        )


def _compare_answers(
    judge: str,
    lake: Readable,
    rows: Sequence[Sequence[Value]],
    asked: Sequence[Question],
    expected: Sequence[int],
    tally: Tally,
) -> None:
    fitting: list[tuple[Question, int]] = []
    for question, count in zip(asked, expected, strict=True):
        limit = question_limit(judge, question, lake.columns, [row[question.places[0]] for row in rows])
        if limit is None:
            fitting.append((question, count))
        else:
            tally.left_out[f"question: {limit}"] += 1
    if judge == judges.SPARK:
        fitting = fitting[:_ASKED_OF_SPARK]
        texts = [
            judges._where([question.predicate()], judges._spark_term, judges._spark_literal).removeprefix(" WHERE ")
            for question, _ in fitting
        ]
        for (question, count), answer in zip(fitting, lake.spark_count(texts), strict=True):
            _judge(judge, question, count, answer, tally)
        return
    wanted = [
        (question, count, push_down)
        for number, (question, count) in enumerate(fitting)
        for push_down in ((True, False) if number % 8 == 0 and judge != judges.PYICEBERG else (True,))
    ]
    answers = lake.judges.count(judge, lake.metadata, [(each.predicate(), down) for each, _, down in wanted])
    if len(answers) < len(wanted):
        tally.left_out["question: the time for one table was over"] += len(wanted) - len(answers)
    # The questions that were not asked are the last ones.
    for (question, count, push_down), answer in zip(wanted, answers, strict=False):
        if isinstance(answer, str):
            raise JudgeRefusedError(f"{answer} ({question})")
        _judge(judge, question, count, answer, tally, push_down=push_down)


def _judge(judge: str, question: Question, expected: int, answer: int, tally: Tally, *, push_down: bool = True) -> None:
    tally.comparisons[f"{judge} questions" + ("" if push_down else " without push-down")] += 1
    if answer != expected:
        raise WrongError(
            f"{judge} finds other rows by {question.data_type.root} {question.operator}",
            f"{question} of type {question.data_type} has {answer} rows, expected {expected}",
        )


def _shown(rows: Counter[Hashable]) -> str:
    return "; ".join(f"{count} x {str(row)[:300]}" for row, count in list(rows.items())[:_SHOWN]) or "none"
