"""Reports on maintenance: they are counted for tables that are tiered, and a dropped table is forgotten."""

from __future__ import annotations

from manager_support import Managers

from engine_support import VirtualClock
from fluss_tiering.model.lake import MaintenanceReport
from fluss_tiering.wire.tiering import status_to_pb


def test_reports_are_counted(managers: Managers, clock: VirtualClock) -> None:
    maintained, other = managers.add_table(1), managers.add_table(2)
    managers.tiering.count_maintenance([MaintenanceReport(each, saved_files=3) for each in (maintained.table_id, 77)])
    assert managers.tiering.totals.of(maintained.table_id).saved_files == 3
    assert managers.tiering.totals.of(other.table_id).maintained_time is None
    assert managers.tiering.statuses(maintained.path)[0].last_maintained_time == clock.now_ms()
    assert managers.tiering.statuses(other.path)[0].last_maintained_time is None


def test_the_maintenance_of_a_dropped_table_is_forgotten(managers: Managers) -> None:
    table = managers.add_table(1)
    managers.tiering.count_maintenance([MaintenanceReport(table.table_id, saved_files=3)])
    managers.tiering.remove(table.table_id)
    assert managers.tiering.totals.of(table.table_id).maintained_time is None


def test_the_sum_of_reports_fits_into_an_answer(managers: Managers) -> None:
    table = managers.add_table(1)
    for _ in range(2):
        managers.tiering.count_maintenance([MaintenanceReport(table.table_id, *[2**63 - 1] * 4)])
    (status,) = managers.tiering.statuses(table.path)
    sent = status_to_pb(status)
    assert (sent.maintenance_saved_files, sent.maintenance_rewritten_bytes) == (2**63 - 1, 2**63 - 1)
    assert (sent.maintenance_expired_snapshots, sent.maintenance_deleted_files) == (2**63 - 1, 2**63 - 1)
