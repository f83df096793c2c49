"""Of a log table, only what newer rounds have added is compared if asked: neither its whole log nor its whole lake."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, tzinfo

import pyarrow as pa
import pytest
from spark_support import LEGACY, Tiering, command, named

from fluss_tiering.model.column_changes import RenameColumn
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo, WriteKind
from fluss_tiering.spark.audit import verify as module
from fluss_tiering.spark.audit.report import TableAudit, equal_text
from fluss_tiering.spark.maintenance.compact import compact_table

DAY = timedelta(days=1)


def audit_after(tiering: Tiering, table: TableInfo, number: int) -> tuple[int, TableAudit]:
    """Return a snapshot by its number, and the audit one day after it of what newer rounds have added."""
    snapshots = tiering.spark.table(f"{tiering.name(table)}.snapshots").orderBy("committed_at").collect()
    found = snapshots[number]

    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return found["committed_at"].astimezone(tz) + DAY

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "datetime", Clock)
        audit = tiering.audit(table, newer_than=DAY, max_differences=3)
    return found["snapshot_id"], audit


@pytest.mark.parametrize("layout", [{}, LEGACY], ids=["clean", "legacy"])
def test_only_rows_of_newer_rounds_are_compared(tiering: Tiering, layout: dict[str, str]) -> None:
    table = tiering.table(primary_key=False, num_buckets=2, properties=layout)
    name, column = tiering.name(table), "name"
    for first in range(0, 60, 20):
        ids = range(first, first + 20)
        rows = pa.table({"id": pa.array(ids, pa.int32()), column: list(named(ids, "row").values())})
        list(tiering.client.write_rows(table.path, WriteKind.APPEND, [rows]))
        tiering.tier(table)
        if first == 20 and not layout:
            table = tiering.client.alter_table(table.path, column_changes=[RenameColumn("name", "title")])
            column = "title"

    after, audit = audit_after(tiering, table, 0)
    assert audit.equal
    assert [sum(each.lake.rows for each in audit.buckets), audit.after_snapshot_id] == [40, after]
    assert equal_text(table, audit).endswith(f", added after snapshot {after}")
    newest, audit = audit_after(tiering, table, -1)
    assert (audit.equal, audit.buckets, audit.lake_snapshot_id) == (True, (), newest)
    # What became of older rows, or in maintenance, is not its question.
    tiering.spark.sql(f"DELETE FROM {name} WHERE id = 5")
    assert compact_table(tiering.spark, table, min_input_files=2).error is None
    assert audit_after(tiering, table, 0)[1].equal
    assert not tiering.equal(table)
    tiering.spark.sql(f"INSERT INTO {name} SELECT * FROM {name} WHERE {column} = 'row 50'")
    _, audit = audit_after(tiering, table, 1)
    assert [(each.source_rows, each.lake_rows) for each in audit.differences] == [(1, 2)]


def test_the_command_says_what_it_has_compared_and_refuses_a_table_with_a_key(tiering: Tiering, monkeypatch, capsys):
    run = command(tiering, monkeypatch)
    table, keyed = tiering.table(primary_key=False), tiering.table()
    for each in (table, keyed):
        tiering.round(each, named(range(10), "row"))

    arguments = ["--newer-than", "365d", "--server", tiering.target]
    assert run("verify", str(table.path), "--json", *arguments) == 0
    (audit,) = json.loads(capsys.readouterr().out)
    assert audit["after_snapshot_id"] is None, "no snapshot is that old"
    assert sum(bucket["lake_rows"] for bucket in audit["buckets"]) == 10
    with pytest.raises(FlussTieringError, match=r"has a primary key.*: expected a log table") as refused:
        run("verify", str(keyed.path), *arguments)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
