"""Histories of deletes by position: each engine finds the rows of a plain model in each snapshot."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

import pytest
from deleted_rows import DeletedRows

from fluss_tiering.lake.files import LakeFile
from fluss_tiering.lake.iceberg.java import jvm_of
from judges import CLICKHOUSE, DUCKDB, PYICEBERG, SPARK

READERS = {2: (SPARK, DUCKDB, CLICKHOUSE, PYICEBERG), 3: (SPARK, DUCKDB, PYICEBERG)}

pytestmark = pytest.mark.slow


@pytest.fixture(params=["files", "merging files", "vectors"])
def table(spark, tmp_path: Path, request) -> DeletedRows:
    version = 3 if request.param == "vectors" else 2
    return DeletedRows(spark, tmp_path, version, merging=request.param == "merging files")


@pytest.mark.sampled(1)
def test_rounds_of_deletes_in_many_files_of_two_partitions(table: DeletedRows) -> None:
    chance = random.Random(f"{table.version} {table.merging}")
    days: dict[tuple[str, ...], list[str]] = {("mon",): [], ("tue",): []}
    for number in range(4):
        for day, files in days.items():
            start = 1000 * number + (500 if day == ("tue",) else 0)
            files.extend(table.add(*(range(start + each, start + each + 10) for each in range(0, 40, 10)), day=day))
            touched = chance.sample(files, chance.randint(1, len(files)))
            table.delete({file: chance.sample(range(10), chance.randint(1, 5)) for file in touched}, day)
    table.check(*READERS[table.version])


@pytest.mark.sampled(1)
def test_locations_with_spaces_marks_and_letters_of_any_script(spark, tmp_path: Path, table: DeletedRows) -> None:
    table.folder = tmp_path / "a lake für 表"
    days = ["a b", "#1", "50 %", "für", "表/ä?", "a=b", "+&"]
    files = {day: table.add(range(10 * number, 10 * number + 10), day=(day,)) for number, day in enumerate(days)}
    for day, (file,) in files.items():
        table.delete({file: [0, 9]}, (day,))
    assert "/a lake für 表/" in unquote(files["a b"][0])
    table.check(*READERS[table.version])


@pytest.mark.sampled(1)
def test_a_round_s_rows_and_deletes_are_in_one_snapshot(table: DeletedRows) -> None:
    first, second = table.add(range(10), range(10, 20))
    lake = table.open()
    upserted, (later,) = table.data_files(lake, [3, 15]), table.data_files(lake, [15])
    gone = {first: [3], second: [5]}
    # The second piece changes a row that the first one wrote.
    table.commit(lake, [*table.written(lake, gone), *upserted], [*in_new_file(table, upserted[0], [1]), later])
    table.rows |= {upserted[0].location: [3, None], later.location: [15]}
    table.forget(gone)
    table.check(*READERS[table.version])


def in_new_file(table: DeletedRows, file: LakeFile, positions: Sequence[int]) -> Sequence[LakeFile]:
    table.rows[file.location] = []
    return table.written(table.open(), {file.location: positions})


def test_deletes_of_version_2_go_on_as_vectors(spark, tmp_path: Path) -> None:
    table = DeletedRows(spark, tmp_path, 2)
    files = table.add(*(range(start, start + 10) for start in range(0, 100, 10)))
    table.delete_together({file: [number] for number, file in enumerate(files)})
    table.delete({files[0]: [9], files[1]: [9]})
    table.delete_by_key({files[0]: [5], files[1]: [5]})
    table.upgrade(3)
    vectors = table.delete({files[0]: [8], files[2]: [8]})
    # The file of all data files stays: it deletes rows of others, and no reader looks into it for those with vectors.
    assert {vector.referenced: len(vector.replaces) for vector in vectors} == {(files[0],): 1, (files[2],): 0}
    assert {vector.referenced: vector.metrics.record_count for vector in vectors} == {(files[0],): 3, (files[2],): 2}
    live = {file.location: file for file in table.live_files(table.open())}
    assert [live[file].has_equality_deletes for file in files[:2]] == [True, True]
    table.delete({files[0]: [7], files[1]: [7]})
    table.check(SPARK, DUCKDB)


def test_iceberg_s_own_code_reads_the_footer_of_a_puffin_file(spark, tmp_path: Path) -> None:
    table = DeletedRows(spark, tmp_path / "ä b", 3)
    files = table.add(range(10), range(10, 20))
    vectors = table.delete({files[0]: [1], files[1]: [1, 2]})
    lake = table.open()
    puffin = jvm_of(spark).org.apache.iceberg.puffin.Puffin
    for vector in vectors:
        reader = puffin.read(lake.java_table.io().newInputFile(vector.location)).build()
        (blob,) = list(reader.fileMetadata().blobs())
        assert blob.type() == "deletion-vector-v1"
        assert list(blob.inputFields()) == [2147483645]
        assert (blob.snapshotId(), blob.sequenceNumber(), blob.compressionCodec()) == (-1, -1, None)
        assert (blob.offset(), blob.length()) == (vector.vector.offset, vector.vector.size_bytes)
        assert dict(blob.properties()) == {
            "referenced-data-file": vector.referenced[0],
            "cardinality": str(vector.metrics.record_count),
        }
        assert reader.fileMetadata().properties()["created-by"].startswith("fluss-tiering ")
        assert vector.size_bytes == Path(vector.location.removeprefix("file://")).stat().st_size
