"""Keys from the indexes of RocksDB's table files, and the choice of split keys."""

import itertools
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rocksdict import AccessType, BlockBasedOptions, DBCompressionType, Options, Rdict

from fluss_tiering.storage.fluss.reading.split_keys import keys_within, split_keys

KEYS = [f"key-{number:06d}".encode() for number in range(20_000)]
COMPRESSIONS = {
    "none": DBCompressionType.none(),
    "snappy": DBCompressionType.snappy(),
    "lz4": DBCompressionType.lz4(),
    "zstd": DBCompressionType.zstd(),
}


def table_file(folder: Path, compression: DBCompressionType, version: int) -> bytes:
    """Return the only table file of a database with these keys."""
    blocks = BlockBasedOptions()
    blocks.set_format_version(version)
    options = Options(raw_mode=True)
    options.set_block_based_table_factory(blocks)
    options.set_compression_type(compression)
    with Rdict(str(folder), options, access_type=AccessType.read_write()) as db:
        for key in KEYS:
            db[key] = key * 5
        db.flush()
    (file,) = folder.glob("*.sst")
    return file.read_bytes()


def keys_of(content: bytes, count: int) -> list[bytes]:
    return keys_within(pa.BufferReader(content), count)


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("version", [4, 5])
def test_keys_cut_a_file_into_parts_of_like_size(tmp_path: Path, compression: str, version: int) -> None:
    content = table_file(tmp_path / "db", COMPRESSIONS[compression], version)
    for count in (1, 7, 50):
        found = keys_of(content, count)
        assert len(found) == count
        bounds = [0, *(sum(key < cut for key in KEYS) for cut in found), len(KEYS)]
        sizes = [end - start for start, end in itertools.pairwise(bounds)]
        assert max(sizes) < 1.2 * len(KEYS) / (count + 1) + 200, sizes
        assert min(sizes) > 0.8 * len(KEYS) / (count + 1) - 200, sizes
    # There are no more keys than blocks, and each comes once.
    many = keys_of(content, 100_000)
    assert many == sorted(set(many))


def test_a_file_of_a_later_format_is_not_cut(tmp_path: Path) -> None:
    assert keys_of(table_file(tmp_path / "db", COMPRESSIONS["lz4"], 6), 7) == []


@pytest.fixture(scope="module")
def whole_file(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return table_file(tmp_path_factory.mktemp("index") / "db", COMPRESSIONS["lz4"], 5)


@given(st.data())
def test_a_damaged_file_has_fewer_keys_or_none(whole_file: bytes, data: st.DataObject) -> None:
    damaged = bytearray(whole_file)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[-data.draw(st.integers(1, 9_000))] = data.draw(st.integers(0, 255))
    keys = keys_of(bytes(damaged[: data.draw(st.sampled_from([len(damaged), 60, 53, 20, 0]))]), 7)
    assert len(keys) <= 7
    assert keys == sorted(set(keys))


def test_parts_are_put_together_to_pieces_of_like_size() -> None:
    first = [(bytes([number]), 1.0) for number in range(100)]
    assert split_keys(first, 4) == (bytes([24]), bytes([49]), bytes([74]))
    # One range is denser in the second file than in the first.
    second = [(bytes([90 + number // 10]), 1.0) for number in range(100)]
    assert split_keys([*first, *second], 2) == (bytes([90]),)
    assert split_keys([], 4) == ()
    assert split_keys([(b"a", 10.0)], 4) == (b"a",)
