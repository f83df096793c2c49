"""Background maintenance that fails in a way that nobody thought of. It needs neither a server nor Spark."""

from __future__ import annotations

from typing import Any

import pytest

from fluss_tiering.model.table import Column, DataType, TableDescriptor, TableInfo, TablePath
from fluss_tiering.spark.maintenance import background
from fluss_tiering.spark.maintenance.background import BackgroundMaintenance
from fluss_tiering.spark.maintenance.maintain import Maintenance
from fluss_tiering.spark.maintenance.plan import ALL_STEPS, MaintenanceLimits

DESCRIPTOR = TableDescriptor(columns=(Column("id", DataType.parse("BIGINT")),), num_buckets=1)
BROKEN, SOUND = (TableInfo(number, TablePath("shop", name), 0, DESCRIPTOR, 0) for number, name in enumerate("ab"))


def run(maintenance: BackgroundMaintenance) -> None:
    """Do what an application does while it has nothing else to do, and wait for what it began."""
    maintenance.begin_if_due()
    if maintenance._thread is not None:
        maintenance._thread.join()


def test_a_table_whose_maintenance_fails_is_left_alone_for_a_while(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    maintained: list[TablePath] = []

    def maintain(_client: Any, _spark: Any, table: TableInfo, **_options: Any) -> Maintenance:
        maintained.append(table.path)
        if table is BROKEN:
            raise ValueError("what nobody thought of")
        return Maintenance(table.path)

    tables = [(BROKEN, ALL_STEPS), (SOUND, ALL_STEPS)]
    monkeypatch.setattr(background, "tables_to_maintain", lambda *_: tables)
    monkeypatch.setattr(background, "maintain_table", maintain)
    client: Any = None
    maintenance = BackgroundMaintenance(client, client, (), MaintenanceLimits(), interval_s=600)

    for _ in range(3):
        run(maintenance)

    assert maintained == [BROKEN.path, SOUND.path]
    (told,) = [each for each in caplog.records if each.levelname == "ERROR"]
    assert told.getMessage() == "shop.a: maintenance failed, and is tried again in 600 s"
    assert told.exc_info is not None
