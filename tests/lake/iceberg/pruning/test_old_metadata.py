"""A lake table that a round creates keeps a bounded number of metadata files, unless its options say otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lake_support import Lake

from judges import DUCKDB

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
