"""Several drivers that create the same lake table at the same time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from fluss_tiering.lake.iceberg.catalog import IcebergCatalogs
from fluss_tiering.model.table import Column, DataType, TableDescriptor, TableInfo, TablePath

DRIVERS = 4


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["hadoop", "jdbc"])
@pytest.mark.sampled(1)
def test_all_open_the_one_table_that_is_created(spark: Any, tmp_path: Path, kind: str) -> None:
    properties = {"name": f"at_once_{kind}", "type": kind, "warehouse": f"file://{tmp_path}/warehouse"}
    if kind == "jdbc":
        properties |= {"uri": f"jdbc:sqlite:{tmp_path}/catalog.db", "jdbc.schema-version": "V1"}
    columns = (Column("id", DataType.parse("BIGINT NOT NULL")),)
    for number in range(10):
        path = TablePath(f"db{number}", "t")
        table = TableInfo(1, path, 1, TableDescriptor(columns, ("id",), ("id",), 1, {}), 0, properties)
        together = Barrier(DRIVERS)

        def create(table: TableInfo = table, together: Barrier = together) -> str:
            catalogs = IcebergCatalogs(spark)
            together.wait(60)
            return catalogs.open_table(table).uuid

        with ThreadPoolExecutor(DRIVERS) as drivers:
            made = [drivers.submit(create) for _ in range(DRIVERS)]
            assert len({each.result(120) for each in made}) == 1
