"""Limits of judges are theirs: a test here fails once a judge no longer has the limit."""

from __future__ import annotations

import math

import pytest
from pyiceberg import expressions as ex
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, FloatType, NestedField

import judges
from fluss_tiering.model.table import Column, DataType
from torture.judging.limits import question_limit
from torture.makers.predicates import Question


@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_pyiceberg_finds_no_infinity_in_a_column_of_type_float(value: float) -> None:
    def bound(kind: FloatType | DoubleType) -> ex.BooleanExpression:
        return ex.EqualTo("x", value).bind(Schema(NestedField(1, "x", kind, required=False)))

    def limit(kind: str, compared: float) -> str | None:
        data_type = DataType.parse(kind)
        question = Question((0,), ("x",), data_type, "=", compared)
        return question_limit(judges.PYICEBERG, question, [Column("x", data_type)], [value])

    assert bound(FloatType()) == ex.AlwaysFalse()
    assert bound(DoubleType()) != ex.AlwaysFalse()
    assert limit("FLOAT", value) == "pyiceberg takes an infinity for a number beyond all FLOATs"
    assert limit("FLOAT", 1.0) is limit("DOUBLE", value) is None
