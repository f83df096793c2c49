"""The hashes of keys, compared with an encoding and a SipHash in plain Python, and the keys of a piece."""

from __future__ import annotations

import pickle
import struct
import uuid
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from arrow_strategies import SCALARS, data_types, values_of, with_counts
from hypothesis import given, settings
from hypothesis import strategies as st
from key_index_support import PLACE, assert_finds, hashes_of
from siphash_reference import PUBLISHED, siphash_128

from fluss_tiering.formats.micros import as_type, lake_type, micros_type
from fluss_tiering.formats.schema import arrow_type
from fluss_tiering.lake.key_index import Hashes, IndexStore, KeyIndex, hash_keys
from fluss_tiering.lake.key_index.writing import PieceKeys, PieceKeysWriter, deleted_keys
from fluss_tiering.model.data_type import DataType
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

TABLE = str(uuid.UUID(bytes=bytes(range(16))))
WORDS = [int.from_bytes(bytes(range(start, start + 8)), "little") for start in range(0, 64, 8)]


def hexes(hashes: Hashes) -> list[str]:
    pairs = zip(hashes.high.tolist(), hashes.low.tolist(), strict=True)
    return [(high.to_bytes(8, "little") + low.to_bytes(8, "little")).hex() for high, low in pairs]


def same(left: Hashes, right: Hashes) -> bool:
    return np.array_equal(left.high, right.high) and np.array_equal(left.low, right.low)


@pytest.mark.parametrize("size", PUBLISHED)
def test_the_reference_is_right(size: int):
    assert siphash_128(bytes(range(16)), bytes(range(size))).hex() == PUBLISHED[size]


@pytest.mark.parametrize("size", [size for size in PUBLISHED if size and size % 8 == 0])
def test_hashes_are_those_that_the_authors_of_siphash_published(size: int):
    words = [pa.array([word], pa.int64()) for word in WORDS[: size // 8]]
    assert hexes(hash_keys(words, TABLE)) == [PUBLISHED[size]]


def encoded(value: object) -> bytes:
    """Return a value's part of a key's message, in plain Python."""
    match value:
        case bool() | int():
            return struct.pack("<q", value)
        case float():
            return struct.pack("<d", value)
        case Decimal():
            sign, digits, _ = value.as_tuple()
            return (int("".join(map(str, digits))) * (-1) ** sign).to_bytes(16, "little", signed=True)
        case str():
            return encoded(value.encode())
        case bytes():
            return struct.pack("<q", len(value)) + value + b"\0" * (-len(value) % 8)
    raise TypeError(type(value))


@given(data=st.data(), types=st.lists(data_types(), min_size=1, max_size=4), rows=st.integers(0, 40))
@settings(deadline=None, max_examples=40)
def test_hashes_are_those_of_plain_python(data: st.DataObject, types: list[DataType], rows: int):
    drawn = [data.draw(st.lists(values_of(each), min_size=rows, max_size=rows)) for each in types]
    arrays = [
        as_type(pa.array(values, arrow_type(each)), lake_type(each)) for values, each in zip(drawn, types, strict=True)
    ]
    keys = list(zip(*(with_counts(array).to_pylist() for array in arrays), strict=True))
    expected = [siphash_128(bytes(range(16)), b"".join(map(encoded, key))).hex() for key in keys]
    assert hexes(hash_keys(arrays, TABLE)) == expected


def other_forms(array: pa.Array, data_type: DataType) -> list[pa.Array | pa.ChunkedArray]:
    """Return the same values as they are met in logs, in Spark and in data files."""
    in_lake = as_type(array, lake_type(data_type))
    forms = [as_type(array, micros_type(data_type)), in_lake]
    cut = len(array) // 2
    forms.append(pa.chunked_array([in_lake.slice(0, cut), in_lake.slice(cut, 0), in_lake.slice(cut)]))
    forms.append(pa.concat_arrays([in_lake.slice(cut), in_lake]).slice(len(array) - cut))
    if pa.types.is_string(in_lake.type) or pa.types.is_binary(in_lake.type):
        is_text = pa.types.is_string(in_lake.type)
        forms.append(in_lake.cast(pa.large_string() if is_text else pa.large_binary()))
        forms.append(pa.concat_arrays([forms[-1][cut:], forms[-1]]).slice(len(array) - cut))
        forms.append(in_lake.cast(pa.string_view() if is_text else pa.binary_view()))
        forms.append(pa.chunked_array([in_lake.slice(0, cut).dictionary_encode(), in_lake[cut:].dictionary_encode()]))
    if pa.types.is_signed_integer(in_lake.type):
        forms.append(in_lake.cast(pa.int64()))
    if pa.types.is_floating(in_lake.type):
        forms.append(in_lake.cast(pa.float64()))
    if pa.types.is_decimal(in_lake.type):
        forms.append(in_lake.cast(pa.decimal256(in_lake.type.precision, in_lake.type.scale)))
    return forms


@pytest.mark.parametrize("root", SCALARS)
@given(data=st.data())
@settings(deadline=None, max_examples=25)
def test_a_key_has_one_hash_wherever_it_is_met(root, data: st.DataObject):
    data_type = data.draw(data_types(roots=[root], nullable=False))
    array = pa.array(data.draw(st.lists(values_of(data_type), max_size=20)), arrow_type(data_type))
    expected = hash_keys([array], TABLE)
    assert len(expected) == len(array)
    for form in other_forms(array, data_type):
        assert same(hash_keys([form], TABLE), expected), form.type


def test_tables_have_hashes_of_their_own():
    keys = [pa.array(range(100))]
    other = hash_keys(keys, str(uuid.UUID(int=1)))
    assert not set(hexes(hash_keys(keys, TABLE))) & set(hexes(other))


def test_many_rows_are_hashed_like_few():
    numbers = np.arange(200_001)
    texts = pa.chunked_array([pa.array(map(str, numbers[:70_000])), pa.array(map(str, numbers[70_000:]))])
    many = hash_keys([pa.array(numbers), texts], TABLE)
    assert len(set(hexes(many))) == len(numbers)
    for row in (0, 65_535, 65_536, 69_999, 70_000, 200_000):
        one = hash_keys([pa.array([row]), pa.array([str(row)])], TABLE)
        assert same(many.slice(row, row + 1), one)


@pytest.mark.parametrize(
    ("keys", "table", "code", "said"),
    [
        ([pa.array([1, None])], TABLE, ErrorCode.INVALID_ROWS, "null in a row"),
        ([pa.array(["a", None]).dictionary_encode()], TABLE, ErrorCode.INVALID_ROWS, "null in a row"),
        ([pa.array([[1]])], TABLE, ErrorCode.INVALID_TABLE, "the type list"),
        ([pa.array([1]), pa.array([1, 2])], TABLE, ErrorCode.INVALID_REQUEST, "1, 2 rows"),
        ([], TABLE, ErrorCode.INVALID_REQUEST, "at least one column"),
        ([pa.array([1])], "orders", ErrorCode.INVALID_REQUEST, "'orders' is not the UUID"),
    ],
)
def test_what_cannot_be_hashed_is_refused(keys: list[pa.Array], table: str, code: ErrorCode, said: str):
    with pytest.raises(FlussTieringError, match=said) as refused:
        hash_keys(keys, table)
    assert refused.value.code is code


ROWS = {"a": [(7, 1), (3, 2), (5, 0)], "b": [(4, 4)]}
DELETED = [(9, 1), (2**64 - 1, 5), (0, 0), (9, 0)]


@pytest.fixture
def store(tmp_path: Path) -> IndexStore:
    return IndexStore(f"file://{tmp_path}/keys")


def deleted_of(store: IndexStore, keys: PieceKeys) -> list[tuple[int, int]]:
    parts = list(deleted_keys(store, keys))
    return [key for part in parts for key in zip(part.high.tolist(), part.low.tolist(), strict=True)]


@pytest.mark.parametrize("with_rows", [True, False])
@pytest.mark.parametrize("with_deletes", [True, False])
def test_a_piece_is_read_as_it_was_written(store: IndexStore, with_rows: bool, with_deletes: bool) -> None:
    with PieceKeysWriter(store, PLACE) as writer:
        if with_rows:
            for location, rows in ROWS.items():
                writer.add(location, hashes_of(rows), np.arange(len(rows)))
        if with_deletes:
            writer.delete(hashes_of(DELETED[:3]))
            writer.delete(hashes_of(DELETED[3:]))
        # The driver sends it to the task that looks the keys up.
        keys: PieceKeys = pickle.loads(pickle.dumps(writer.close()))

    assert (keys.rows is not None, keys.deleted is not None) == (with_rows, with_deletes)
    deleted = deleted_of(store, keys)
    assert sorted(deleted) == (sorted(DELETED) if with_deletes else [])
    assert [high for high, _ in deleted] == sorted(high for high, _ in deleted)
    if keys.rows is not None:
        assert keys.rows.place == PLACE
        every = [key for rows in ROWS.values() for key in rows]
        assert_finds(KeyIndex(store, PLACE, [keys.rows]), ROWS, set(ROWS), [*every, (1, 1)])
    if keys.deleted is not None:
        assert keys.deleted.place == PLACE
        assert keys.deleted.name.startswith(PLACE.folder)


def test_no_hashes_are_of_the_type_of_all_others() -> None:
    joined = Hashes.concat([Hashes.empty(), hashes_of([(2**64 - 1, 2**64 - 3)])])
    assert (joined.high.tolist(), joined.low.tolist()) == ([2**64 - 1], [2**64 - 3])
    assert {Hashes.empty().high.dtype, Hashes.empty().low.dtype} == {np.dtype(np.uint64)}
