"""Snapshots whose size is not known are measured before they are cut into pieces."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from engine_support import table_info
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import KvSnapshot, TableBucket, TableInfo
from fluss_tiering.spark.round.measure import measured

TABLE = table_info(7)


def snapshot(number: int, rows: int) -> KvSnapshot:
    return KvSnapshot(TableBucket(7, number), 3, 10, rows, 0 if rows < 0 else 500, "kv/3")


class Reader:
    """Knows the size of the files of each bucket's snapshot."""

    def measure_kv_snapshot(self, table: TableInfo, of: KvSnapshot) -> KvSnapshot:
        assert table is TABLE
        number = of.bucket.bucket
        if number == 99:
            raise FlussTieringError(ErrorCode.KV_SNAPSHOT_NOT_EXIST, "gone")
        return replace(of, size_bytes=1000 + number, split_keys=(bytes([number]),))


def test_each_snapshot_of_a_cluster_gets_its_own_size_and_keys():
    snapshots = {each.bucket: each for each in (snapshot(number, -1) for number in range(30))}

    sized = measured(lambda: cast("Any", Reader()), TABLE, snapshots)

    assert list(sized) == list(snapshots)
    for bucket, each in sized.items():
        assert each == replace(snapshots[bucket], size_bytes=1000 + bucket.bucket, split_keys=(bytes([bucket.bucket]),))


def test_snapshots_of_known_size_are_not_looked_at():
    def never() -> Any:
        raise AssertionError("opening a reader connects to the cluster")

    snapshots = {each.bucket: each for each in (snapshot(0, 0), snapshot(1, 12))}
    assert measured(never, TABLE, snapshots) == snapshots
    assert measured(never, TABLE, {}) == {}


def test_a_snapshot_that_is_gone_fails_the_round():
    snapshots = {each.bucket: each for each in (snapshot(1, -1), snapshot(99, -1))}
    with pytest.raises(FlussTieringError, match="gone") as failed:
        measured(lambda: cast("Any", Reader()), TABLE, snapshots)
    assert failed.value.code is ErrorCode.KV_SNAPSHOT_NOT_EXIST
