"""Records that leave the lake because they are older than the table's options allow."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from source_support import columns
from spark_support import Tiering

from engine_support import new_path
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.lake.expired_records import expired_records
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableDescriptor, TableInfo, WriteKind
from fluss_tiering.spark.maintenance.maintain import Maintenance, maintain_table
from fluss_tiering.spark.maintenance.plan import MaintenanceLimits, Step, plan_table, tables_to_maintain
from fluss_tiering.spark.maintenance.publish import publish_table
from fluss_tiering.spark.maintenance.words import planned_text

COLUMNS = columns(id="BIGINT NOT NULL", at="TIMESTAMP(3)", seen="TIMESTAMP_LTZ(6)", day="DATE")
EXPIRE_TIME, TIME_FIELD = "table.datalake.record-level.expire-time", "table.datalake.record-level.time-field"
NOW = datetime.now(UTC).replace(tzinfo=None)


def made(tiering: Tiering, field: str, *, key: tuple[str, ...] = (), **properties: str) -> TableInfo:
    options = {"table.datalake.enabled": "true", EXPIRE_TIME: "10 d", TIME_FIELD: field, **properties}
    descriptor = TableDescriptor(COLUMNS, num_buckets=2, primary_key=key, properties=options)
    return tiering.client.create_table(new_path(), descriptor)


def write(tiering: Tiering, table: TableInfo, days_ago: dict[int, int | None]) -> None:
    rows: list[dict[str, Any]] = []
    for number, days in days_ago.items():
        at = None if days is None else NOW - timedelta(days=days)
        seen, day = (None, None) if at is None else (at.replace(tzinfo=UTC), at.date())
        rows.append({"id": number, "at": at, "seen": seen, "day": day})
    kind = WriteKind.UPSERT if table.has_primary_key else WriteKind.APPEND
    batch = pa.Table.from_pylist(rows, schema=arrow_schema(COLUMNS))
    assert sum(tiering.client.write_rows(table.path, kind, [batch])) == len(rows)


def maintained(tiering: Tiering, table: TableInfo) -> Maintenance:
    done = maintain_table(tiering.client, tiering.spark, table, steps={Step.EXPIRE_RECORDS})
    assert done.error is None
    return done


def ids(tiering: Tiering, table: TableInfo) -> list[int]:
    return sorted(row.id for row in tiering.spark.table(tiering.name(table)).collect())


@pytest.mark.parametrize(
    ("field", "key", "properties"),
    [
        ("at", (), {"table.datalake.partition-by": "days(at)"}),
        ("seen", (), {}),
        ("day", ("id",), {"table.datalake.layout": "clean"}),
        ("at", ("id",), {"iceberg.format-version": "3"}),
    ],
)
def test_old_records_leave_the_lake(tiering: Tiering, field: str, key: tuple[str, ...], properties: dict[str, str]):
    table = made(tiering, field, key=key, **properties)
    assert maintained(tiering, table).expired_records == 0
    write(tiering, table, {1: 30, 2: 12, 3: 8, 4: 0, 5: None})
    tiering.tier(table)
    plan = plan_table(tiering.client, tiering.spark, table, {Step.EXPIRE_RECORDS}, MaintenanceLimits())
    assert plan is not None
    assert (planned_text(plan), plan.is_empty) == ("would delete 2 expired records", False)
    done = maintained(tiering, table)
    assert (done.expired_records, done.did_something) == (2, True)
    assert ids(tiering, table) == [3, 4, 5]
    assert tiering.equal(table)
    # There is nothing to delete, so that there is no snapshot, either.
    before = tiering.lake_table(table)
    assert maintained(tiering, table).expired_records == 0
    after = tiering.lake_table(table)
    assert before is not None
    assert after is not None
    assert before.base() == after.base()
    # Rounds go on, and a key whose record had left comes back with a newer time.
    write(tiering, table, {6: 40, 2: 1} if key else {6: 40, 7: 1})
    tiering.tier(table)
    assert ids(tiering, table) == sorted([3, 4, 5, 6, 2 if key else 7])
    assert tiering.equal(table)
    assert maintained(tiering, table).expired_records == 1
    assert tiering.equal(table)
    (chosen,) = [steps for each, steps in tables_to_maintain(tiering.client, ()) if each.path == table.path]
    assert chosen == {Step.EXPIRE_RECORDS}


def test_records_leave_the_branch_to_which_rounds_commit(tiering: Tiering) -> None:
    table = made(tiering, "at", **{"table.datalake.commit-branch": "to-check"})
    write(tiering, table, {1: 30, 2: 1})
    tiering.tier(table)
    assert publish_table(tiering.client, tiering.spark, table).error is None
    assert maintained(tiering, table).expired_records == 1
    assert ids(tiering, table) == [1, 2], "main has what was published"
    write(tiering, table, {3: 2})
    tiering.tier(table)
    assert publish_table(tiering.client, tiering.spark, table).error is None
    assert ids(tiering, table) == [2, 3]


def test_a_key_whose_last_change_is_expired_is_not_missing_in_the_lake(tiering: Tiering) -> None:
    table = made(tiering, "at", key=("id",))
    write(tiering, table, {1: 1, 2: 1})
    tiering.tier(table)
    write(tiering, table, {1: 20})
    tiering.tier(table)
    assert maintained(tiering, table).expired_records == 1
    assert ids(tiering, table) == [2]
    assert tiering.equal(table)


def test_wrong_options_are_refused_at_creation(tiering: Tiering) -> None:
    for options, told in (
        (
            {TIME_FIELD: "gone"},
            "expected a column of one of the types DATE, TIMESTAMP, TIMESTAMP_LTZ, which are at",
        ),
        ({TIME_FIELD: "id"}, "is 'id': expected a column"),
        ({EXPIRE_TIME: "soon"}, f"{EXPIRE_TIME}: "),
        ({TIME_FIELD: "at", "fluss." + EXPIRE_TIME: "x"}, f"{EXPIRE_TIME}: "),
    ):
        properties = {"table.datalake.enabled": "true", EXPIRE_TIME: "10 d", TIME_FIELD: "at", **options}
        if "fluss." + EXPIRE_TIME in options:
            del properties[EXPIRE_TIME]
        with pytest.raises(FlussTieringError) as refused:
            tiering.client.create_table(new_path(), TableDescriptor(COLUMNS, properties=properties))
        assert refused.value.code is ErrorCode.INVALID_TABLE
        assert told in refused.value.message
    with pytest.raises(FlussTieringError, match="expected both options or none"):
        tiering.client.create_table(new_path(), TableDescriptor(COLUMNS, properties={EXPIRE_TIME: "10 d"}))


def test_records_are_expired_by_whole_days_and_hours(tiering: Tiering) -> None:
    now = datetime(2026, 11, 30, 15, 47, 3, tzinfo=UTC)
    for field, after, bound in (
        ("day", "10 d", "DATE '2026-11-20'"),
        ("at", "36 h", "TIMESTAMP_NTZ '2026-11-29 00:00:00'"),
        ("seen", "2 h", "TIMESTAMP '2026-11-30 13:00:00 UTC'"),
    ):
        table = made(tiering, field, **{EXPIRE_TIME: after})
        assert expired_records(table, now) == f"`{field}` IS NOT NULL AND `{field}` < {bound}"
