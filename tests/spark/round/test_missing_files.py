"""A commit never names a file that the driver does not see."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlparse

import pytest
from spark_support import Tiering, named, replace_stage

from fluss_tiering.lake.shared_folder import require_shared
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.spark.round.stage import run_stage


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


# D48
@pytest.mark.parametrize("primary_key", [True, False])
@pytest.mark.parametrize("harm", [Path.unlink, truncate])
def test_a_file_that_is_not_where_an_executor_wrote_it_is_not_committed(
    tiering: Tiering, monkeypatch: pytest.MonkeyPatch, harm: Callable[[Path], None], primary_key: bool
):
    table = tiering.table(primary_key=primary_key)
    tiering.write(table, named(range(5), "first"))
    tiering.tier(table)
    known = tiering.client.lake_snapshot(table.path)
    tiering.write(table, named(range(5, 9), "second"))

    def run(*arguments):
        results = run_stage(*arguments)
        harm(Path(urlparse(results[-1].files[-1].location).path))
        return results

    with monkeypatch.context() as patched:
        replace_stage(patched, run)
        (result,) = tiering.tier_all(table)

    assert "the driver does not see 1 of the files" in result.error
    assert tiering.client.lake_snapshot(table.path) == known
    assert len(tiering.snapshots(table)) == 1
    assert sorted(tiering.files(table)) == tiering.files_on_disk(table), "nothing of the round is left"
    tiering.tier(table)
    assert tiering.lake_rows(table) == sorted({**named(range(5), "first"), **named(range(5, 9), "second")}.items())


# D48
def test_an_executor_must_see_the_folder_that_the_driver_sees(tmp_path: Path):
    for seen in (None, str(tmp_path), f"file:{tmp_path}", f"file://{tmp_path}", "s3://bucket/db/t/metadata"):
        require_shared(seen)
    with pytest.raises(FlussTieringError, match="does not see the lake table's folder") as refused:
        require_shared(f"file:{tmp_path}/metadata")
    assert refused.value.code is ErrorCode.STORAGE
