"""What a lake table keeps stays small: the summary of a snapshot, and the number of its metadata files."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from lake_support import Lake

from fluss_tiering.lake.protocol import LakeCommit
from fluss_tiering.model.table import TableBucket
from judges import DUCKDB

_LARGEST = 64_000


@pytest.mark.parametrize("partitions", [None, 1000])
def test_the_summary_of_a_commit_of_100_000_buckets_is_below_64_kb(
    spark: Any, tmp_path: Path, partitions: int | None
) -> None:
    lake = Lake(spark, tmp_path, {"k": "INT"})
    each = 100_000 // (partitions or 1)
    ends = {
        TableBucket(1, bucket, partition): 10**12 + bucket
        for partition in (range(10**6, 10**6 + partitions) if partitions else [None])
        for bucket in range(each)
    }
    assert len(ends) == 100_000

    for number in range(2):
        table = lake.open()
        files = lake.write(table, [lake.batch([{"k": number}])])
        table.commit([files], LakeCommit(1, number, str(uuid.uuid4()), "/offsets", ends))

    metadata = Path(lake.metadata)
    snapshots = json.loads(metadata.read_text())["snapshots"]
    assert len(snapshots) == 2
    assert all(len(json.dumps(snapshot["summary"])) < _LARGEST for snapshot in snapshots)
    found = lake.open().newest_commit()
    assert found is not None
    assert found.commit.log_end_offsets == ends


_OPTION = "write.metadata.delete-after-commit.enabled"


@pytest.mark.parametrize(("option", "left"), [({}, 3), ({_OPTION: "true"}, 3), ({_OPTION: "false"}, 6)])
def test_old_metadata_files_go_unless_the_table_says_otherwise(
    spark: Any, tmp_path: Path, option: dict[str, str], left: int
) -> None:
    lake = Lake(spark, tmp_path, {"k": "INT"}, properties={**option, "write.metadata.previous-versions-max": "2"})

    for number in range(5):
        lake.commit(lake.batch([{"k": number}]))

    metadata = list((tmp_path / "db" / "t" / "metadata").glob("v*.metadata.json"))
    assert len(metadata) == left
    assert lake.values(DUCKDB, "k") == [0, 1, 2, 3, 4]
