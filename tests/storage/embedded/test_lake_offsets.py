import json
import os
from pathlib import Path

import pytest
from embedded_tables import PATH, log_table, opened
from refusals import refused

from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.table import TableBucket, TablePath


def test_an_offsets_file_is_laid_out_as_fluss_reads_it(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        table_id = storage.create_table(PATH, log_table(3)).table_id
        path = storage.write_lake_offsets(table_id, {TableBucket(table_id, 2): 400, TableBucket(table_id, 0): 7})
        assert Path(path).read_text() == f'{{"version":1,"table_id":{table_id},"bucket_offsets":[7,-1,400]}}'
        again = storage.write_lake_offsets(table_id, {TableBucket(table_id, 0): -1})
        assert again != path
        assert json.loads(Path(again).read_text())["bucket_offsets"] == [-1, -1, -1]
    with opened(tmp_path) as storage:
        assert storage.has_lake_offsets(table_id, path)


def test_only_a_file_made_for_the_table_counts(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        table = storage.create_table(PATH, log_table()).table_id
        other = storage.create_table(TablePath("shop", "other"), log_table()).table_id
        path = Path(storage.write_lake_offsets(table, {TableBucket(table, 0): 1}))
        assert storage.has_lake_offsets(table, str(path))
        assert not storage.has_lake_offsets(other, str(path))
        assert not storage.has_lake_offsets(table, str(path.with_name("missing.offsets")))
        assert not storage.has_lake_offsets(table, str(path.parent.parent / "table.json"))
        with refused(ErrorCode.TABLE_NOT_EXIST):
            storage.has_lake_offsets(99, str(path))
        path.unlink()
        assert not storage.has_lake_offsets(table, str(path))


@pytest.mark.parametrize(
    ("bucket", "offset", "message"),
    [((0, 1), 5, "expected buckets 0 to 0"), ((1, 0), 5, "expected buckets"), ((0, 0), -2, "expected -1 or more")],
)
def test_offsets_of_other_buckets_are_refused(
    tmp_path: Path, bucket: tuple[int, int], offset: int, message: str
) -> None:
    with opened(tmp_path) as storage:
        table_id = storage.create_table(PATH, log_table()).table_id
        with refused(ErrorCode.INVALID_REQUEST, message):
            storage.write_lake_offsets(table_id, {TableBucket(table_id + bucket[0], bucket[1]): offset})
        assert not list(tmp_path.glob("tables/*/*/metadata/*"))


@pytest.mark.slow
def test_files_are_looked_through_now_and_then_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    day, minute = 24 * 3600, 60
    looks = []
    with opened(tmp_path) as storage:
        table = storage.create_table(PATH, log_table()).table_id

        def write(at: int) -> str:
            path = storage.write_lake_offsets(table, {TableBucket(table, 0): 1})
            os.utime(path, (at, at))
            return path

        glob = Path.glob
        monkeypatch.setattr(Path, "glob", lambda self, pattern: looks.append(pattern) or glob(self, pattern))
        old = write(at=10 * day)
        assert storage.delete_lake_offsets(table, write(at=10 * day), ()) == 0
        # A commit each second, a day later.
        for second in range(20 * minute):
            registered = write(at=20 * day + second)
            storage.delete_lake_offsets(table, registered, (old,))
        assert len(looks) == 1 + 2
        assert Path(old).exists()
        assert storage.delete_lake_offsets(table, write(at=20 * day + 30 * minute), ()) == 1
        assert not Path(old).exists()
        # A clock that was set back hides no file for ever.
        old = write(at=3 * day)
        assert storage.delete_lake_offsets(table, write(at=5 * day), ()) == 1
