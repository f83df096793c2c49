"""Another tiering service of Fluss has committed to the lake, and ended before it registered its snapshot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pyarrow as pa
import pytest
from source_support import columns
from spark_support import Tiering, named

from engine_support import new_path
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.lake.iceberg import commit as iceberg_commit
from fluss_tiering.lake.iceberg.metadata.summary import to_summary
from fluss_tiering.lake.protocol import LakeCommit
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableDescriptor, TableInfo, WriteKind
from fluss_tiering.spark.retry import RetryingClient
from fluss_tiering.storage.fluss.lake_offsets_files import read_offsets_file
from fluss_tiering.storage.fluss.reading.remote_files import RemoteFiles

DAYS = columns(id="BIGINT NOT NULL", day="STRING NOT NULL")
OURS = "fluss-tiering."


def commit_as_flink(tiering: Tiering, table: TableInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commit a round with the properties that Flink's tiering service writes, and end before it is registered."""

    def without_ours(commit: LakeCommit) -> dict[str, str]:
        kept = {key: value for key, value in to_summary(commit).items() if not key.startswith(OURS)}
        # By its id the committer finds its own snapshot again.
        return {**kept, iceberg_commit.COMMIT_ID: commit.commit_id}

    def end(*args: object, **kwargs: object) -> None:
        raise FlussTieringError(ErrorCode.UNAVAILABLE, "ended before it registered")

    with monkeypatch.context() as patched:
        patched.setattr(iceberg_commit, "to_summary", without_ours)
        patched.setattr(RetryingClient, "commit_lake_snapshot", end)
        (result,) = tiering.tier_all(table, claim_timeout_s=60)
    assert "ended before it registered" in result.error
    tiering.client.resume_tables([table.path])


def write(tiering: Tiering, table: TableInfo, ids: range) -> None:
    if "day" not in [column.name for column in table.descriptor.columns]:
        tiering.write(table, named(ids, "row"))
        return
    for day in ("monday", "tuesday"):
        rows = pa.table({"id": list(ids), "day": [day] * len(ids)}, schema=arrow_schema(DAYS))
        list(tiering.client.write_rows(table.path, WriteKind.APPEND, [rows]))


def partitioned(tiering: Tiering, properties: dict[str, Any]) -> TableInfo:
    made = TableDescriptor(DAYS, num_buckets=2, partition_keys=("day",), properties=properties)
    return tiering.client.create_table(new_path(), made)


# D53
@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", ["keyed", "log", "partitioned"])
@pytest.mark.parametrize("rounds_before", [0, 1])
def test_a_snapshot_of_another_service_is_taken_up_with_its_own_offsets(
    cluster: Tiering, monkeypatch: pytest.MonkeyPatch, kind: str, rounds_before: int
):
    options = {"table.datalake.enabled": "true", "table.datalake.freshness": "1s"}
    table = (
        partitioned(cluster, options)
        if kind == "partitioned"
        else cluster.table(primary_key=kind == "keyed", freshness="1s", num_buckets=2)
    )
    for number in range(rounds_before):
        write(cluster, table, range(10 * number, 10 * number + 10))
        cluster.tier(table, claim_timeout_s=60)
    write(cluster, table, range(50, 60))
    commit_as_flink(cluster, table, monkeypatch)
    theirs = cluster.snapshots(table)[-1]
    assert f"{OURS}offsets" not in theirs.summary
    write(cluster, table, range(55, 65))

    result = cluster.tier(table, claim_timeout_s=60)

    assert result.stats.rows in {10, 20}, "only what came after it, in each partition"
    assert cluster.equal(table)
    assert len([each for each in cluster.snapshots(table) if f"{OURS}offsets" in each.summary]) == rounds_before + 1


# D53
def test_a_snapshot_whose_offsets_are_gone_is_refused_with_a_remedy_that_harms_nothing(
    cluster: Tiering, monkeypatch: pytest.MonkeyPatch
):
    table = cluster.table(freshness="1s")
    write(cluster, table, range(10))
    cluster.tier(table, claim_timeout_s=60)
    write(cluster, table, range(10, 20))
    commit_as_flink(cluster, table, monkeypatch)
    Path(urlparse(cluster.snapshots(table)[-1].summary["fluss-offsets"]).path).unlink()

    (result,) = cluster.tier_all(table, claim_timeout_s=60)

    assert "its offsets cannot be read" in result.error
    assert "drop" not in result.error
    cluster.client.resume_tables([table.path])
    cluster.spark.sql(result.error[result.error.index("CALL ") :])
    cluster.tier(table, claim_timeout_s=60)
    assert cluster.lake_rows(table) == sorted(named(range(20), "row").items())


# D53
@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"version": 1, "table_id": 8, "bucket_offsets": [1]}, "it is of the table 8"),
        ({"version": 1, "table_id": 7, "bucket_offsets": 3}, "TypeError"),
        ([], "TypeError"),
        (None, "it does not exist"),
    ],
)
def test_an_offsets_file_that_is_none_is_named(tmp_path: Path, content: object, said: str):
    folder = tmp_path / "lake" / "db" / "t-7" / "metadata"
    folder.mkdir(parents=True)
    file = folder / "some.offsets"
    if content is not None:
        file.write_text(json.dumps(content))
    with pytest.raises(FlussTieringError, match=said) as raised:
        read_offsets_file(RemoteFiles(), 7, f"file://{file}")
    assert raised.value.code is ErrorCode.CORRUPT_DATA
    with pytest.raises(FlussTieringError, match="no offsets file of the table 9"):
        read_offsets_file(RemoteFiles(), 9, f"file://{file}")
