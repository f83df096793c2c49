"""Lake tables whose properties ask for files of no size are neither compacted nor maintained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest
from spark_support import Tiering, named

from fluss_tiering.model.table import TableInfo
from fluss_tiering.spark.maintenance.compact import Compaction, CompactionOptions, compact_table
from fluss_tiering.spark.maintenance.maintain import Maintenance, maintain_table

DATA: Final = "write.target-file-size-bytes"
MANIFESTS: Final = "commit.manifest.target-size-bytes"


def compacted(tiering: Tiering, table: TableInfo) -> Compaction:
    return compact_table(tiering.spark, table, CompactionOptions())


def maintained(tiering: Tiering, table: TableInfo) -> Maintenance:
    return maintain_table(tiering.client, tiering.spark, table)


def table_with(tiering: Tiering, key: str, value: str) -> TableInfo:
    table = tiering.table(properties={"table.datalake.delete-files": "position"})
    for number in range(7):
        tiering.write(table, named(range(5 * number, 5 * number + 10), "row"))
        tiering.tier(table)
    tiering.spark.sql(f"ALTER TABLE {tiering.name(table)} SET TBLPROPERTIES ('{key}' = '{value}')")
    return table


@pytest.mark.slow
@pytest.mark.parametrize(("key", "value"), [(DATA, "9223372036854775807"), (MANIFESTS, "0"), (MANIFESTS, "-1")])
@pytest.mark.parametrize("keep", [compacted, maintained])
@pytest.mark.sampled(2)
def test_a_size_that_is_none_is_refused_in_words(
    tiering: Tiering, key: str, value: str, keep: Callable[[Tiering, TableInfo], Compaction | Maintenance]
) -> None:
    table = table_with(tiering, key, value)
    expected = tiering.lake_rows(table)
    error = keep(tiering, table).error
    assert error is not None
    assert f"the property {key} of the lake table" in error
    assert f"is '{value}': expected a whole number" in error
    assert "UNSET TBLPROPERTIES" in error
    assert tiering.lake_rows(table) == expected
