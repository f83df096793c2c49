"""Statements by which a user of the lake deletes rows: one predicate on one column, which the model can answer, too."""

from __future__ import annotations

import random
from typing import Final

import judges
from torture.judging.limits import table_limit
from torture.makers.predicates import Question, questions
from torture.steps.running import Running

_ASKED: Final = 400


def delete_statement(run: Running, name: str, seed: int) -> tuple[Question, str] | None:
    """Return a predicate that a row of the lake fulfils, and the statement that deletes by it.

    Args:
        run: The plan that runs.
        name: The name of the table.
        seed: What the predicate comes from.

    Returns:
        None if the lake table has no rows, or if Spark cannot read it.
    """
    planned, rows = run.planned(name), run.models[name].lake_rows()
    limit = table_limit(judges.SPARK, planned.typed, has_deletes=True, keys={})
    if limit is not None:
        run.tally.left_out[limit] += 1
        return None
    chance = random.Random(f"delete/{seed}")
    asked = questions(planned.typed, rows, chance, _ASKED)
    # Iceberg 1.12 also deletes rows with NULL by `<>` if its metrics say that all values of a file fulfil it.
    fitting = [question for question in asked if question.operator != "<>" and any(map(question.holds, rows))]
    if not fitting:
        return None
    # A statement that leaves rows shows more than one that deletes all, which needs no rewrite.
    partial = [question for question in fitting if not all(map(question.holds, rows))]
    question = chance.choice(partial or fitting)
    condition = judges._where([question.predicate()], judges._spark_term, judges._spark_literal)
    return question, f"DELETE FROM {{table}}{condition}"
