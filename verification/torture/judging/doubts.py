"""Finds out which of the rows that are in doubt a lake table holds; every judge must then agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import judges
from fluss_tiering.model.table import Column
from torture.arrow_values import rows_of
from torture.judging.checks import Readable
from torture.judging.limits import table_limit
from torture.model import TableModel


def can_settle(columns: Sequence[Column], keys: Mapping[str, Sequence[str]]) -> bool:
    """Return whether a judge can read all columns of such a table.

    Args:
        columns: The columns.
        keys: The names and the values of the columns that the lake table's partitions are made of.
    """
    limits = (table_limit(judge, columns, has_deletes=True, keys=keys) for judge in (judges.DUCKDB, judges.SPARK))
    return None in limits


def settle(lake: Readable, model: TableModel) -> int:
    """Let the model know which rows are there, and return how many of those in doubt are.

    DuckDB is asked, or Spark if it cannot read the table. `can_settle` says whether one of them can.
    """
    names = [column.name for column in lake.columns]
    limited = table_limit(judges.DUCKDB, lake.columns, has_deletes=lake.has_deletes, keys=lake.keys)
    table = lake.spark_read(names) if limited else lake.judges.read(judges.DUCKDB, lake.metadata, names)
    return model.settle(rows_of(lake.columns, table))
