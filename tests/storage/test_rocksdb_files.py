"""Reading a RocksDB when some of its files are missing."""

import hashlib
from pathlib import Path

import pyarrow as pa
import pytest
from rocksdict import AccessType, Options, Rdict

from fluss_tiering.storage.files import temporary_folder
from fluss_tiering.storage.rocksdb_files import entries, table_files

COUNT = 50_000


def key_of(number: int) -> bytes:
    return f"{number:06d}".encode()


def value_of(number: int) -> bytes:
    """Return a value that cannot be compressed."""
    return hashlib.sha256(key_of(number)).digest()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a store with several files that do not overlap, and one on level 0."""
    options = Options(raw_mode=True)
    options.set_target_file_size_base(256 << 10)
    with Rdict(str(tmp_path / "db"), options, access_type=AccessType.read_write()) as db:
        for first in (0, 1):
            for number in range(first, COUNT, 2):
                db[key_of(number)] = value_of(number)
            db.flush()
        db.compact_range(None, None)
        db[key_of(COUNT // 2)] = b"newest"
        db.flush()
    return tmp_path / "db"


def read(folder: Path, *key_range: bytes | None) -> dict[bytes, bytes]:
    found = pa.Table.from_batches(entries(folder, *key_range, 1 << 20, partial=True))
    return dict(zip(found.column("key").to_pylist(), found.column("value").to_pylist(), strict=True))


def stand_in(file: Path) -> None:
    size = file.stat().st_size
    file.unlink()
    with file.open("xb") as empty:
        empty.truncate(size)


def test_a_range_is_read_from_the_files_that_may_hold_it(folder: Path) -> None:
    files = table_files(folder)
    assert len(files) > 4
    from_key, to_key = key_of(COUNT // 2 - 100), key_of(COUNT // 2 + 100)
    held = [file for file in files if file.may_hold(from_key, to_key)]
    assert 2 <= len(held) < len(files)
    for file in files:
        if file not in held:
            stand_in(folder / file.name)
    expected = {key_of(number): value_of(number) for number in range(COUNT // 2 - 100, COUNT // 2 + 100)}
    assert read(folder, from_key, to_key) == {**expected, key_of(COUNT // 2): b"newest"}
    # Other files tell which table files there are.
    assert {file.name for file in table_files(folder)} == {file.name for file in files}


def test_a_file_that_is_missing_after_all_is_an_error(folder: Path) -> None:
    last = max(table_files(folder), key=lambda file: file.last_key)
    stand_in(folder / last.name)
    with pytest.raises(Exception, match="Corruption"):
        read(folder, None, None)


def test_a_folder_goes_with_its_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/elsewhere")
    with temporary_folder("test") as own:
        assert own.parent == tmp_path
        (own / "file").touch()
    assert list(tmp_path.iterdir()) == []


# D43: bytes are counted, whatever the sizes of entries are
@pytest.mark.parametrize("sizes", [[70] * 3000, [1 << 20] * 40, [50] * 500 + [3 << 20] * 5 + [50] * 500 + [1 << 19]])
def test_chunks_are_bounded_by_the_bytes_of_their_entries(tmp_path: Path, sizes: list[int]) -> None:
    with Rdict(str(tmp_path / "db"), Options(raw_mode=True)) as db:
        for number, size in enumerate(sizes):
            db[key_of(number)] = bytes(size)
        db.flush()
    chunk_bytes = 2 << 20

    chunks = list(entries(tmp_path / "db", None, None, chunk_bytes))

    assert pa.Table.from_batches(chunks).column("key").to_pylist() == [key_of(number) for number in range(len(sizes))]
    assert [len(value) for chunk in chunks for value in chunk.column("value").to_pylist()] == sizes
    for chunk in chunks:
        held = sum(len(key) + len(value) for key, value in zip(*(c.to_pylist() for c in chunk.columns), strict=True))
        assert held <= chunk_bytes or chunk.num_rows == 1
    # Small entries are not spread over many chunks.
    assert len(chunks) <= 2 * sum(sizes) / chunk_bytes + 2
