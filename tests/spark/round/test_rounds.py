"""Rounds of tables with a real server, Spark and Iceberg."""

from __future__ import annotations

from spark_support import LEGACY, Tiering, named

from fluss_tiering.client import TieringClient
from fluss_tiering.lake.iceberg.metadata import summary
from fluss_tiering.model.errors import ErrorCode, FlussTieringError


def test_a_first_round_takes_the_snapshot_and_the_log_behind_it_in_one_commit(tiering: Tiering):
    table = tiering.table(num_buckets=2, properties=LEGACY)
    tiering.write(table, named(range(20), "old"))
    tiering.client.take_kv_snapshots([table.path])
    tiering.write(table, named(range(5, 25), "new"))
    tiering.delete(table, [0, 5])

    result = tiering.tier(table)

    expected = {**named(range(20), "old"), **named(range(5, 25), "new")}
    del expected[0], expected[5]
    assert tiering.lake_rows(table) == sorted(expected.items())
    from_snapshot = [row for row in tiering.lake(table) if row.name.startswith("old")]
    assert {(row["__offset"], round(row["__timestamp"].timestamp() * 1000)) for row in from_snapshot} == {(-1, -1)}
    assert len({row.committed_at for row in tiering.snapshots(table)}) <= 2
    assert tiering.client.list_leases() == []
    assert result.stats.rows == 20 + 20 + 2

    # Changes replace and delete what is in the lake.
    tiering.write(table, named(range(10, 16), "second"))
    tiering.delete(table, [1, 12, 24])
    tiering.write(table, {12: "back again"})
    tiering.delete(table, [1000])
    tiering.tier(table)
    expected.update({**named(range(10, 16), "second"), 12: "back again"})
    del expected[1], expected[24]
    assert tiering.lake_rows(table) == sorted(expected.items())


# D49: the offsets of many buckets lie in a file of the lake
def test_a_commit_whose_offsets_lie_in_a_file_is_registered_by_the_next_round(tiering: Tiering, monkeypatch):
    monkeypatch.setattr(summary, "_MAX_OFFSETS_LENGTH", 0)
    table = tiering.table(num_buckets=3)
    tiering.write(table, named(range(20), "first"))
    with monkeypatch.context() as away:

        def refuse(*_given: object, **_more: object) -> None:
            raise FlussTieringError(ErrorCode.UNAVAILABLE, "the server is away")

        away.setattr(TieringClient, "commit_lake_snapshot", refuse)
        (failed,) = tiering.tier_all(table)
        assert failed.failed
    assert tiering.client.lake_snapshot(table.path) is None
    ends = tiering.log_ends(table)
    tiering.client.resume_tables([table.path])
    tiering.write(table, named(range(10, 30), "second"))

    result = tiering.tier(table)

    assert not result.failed
    assert result.stats.rows == 20
    assert tiering.log_ends(table) != ends
    assert tiering.lake_rows(table) == sorted({**named(range(20), "first"), **named(range(10, 30), "second")}.items())
