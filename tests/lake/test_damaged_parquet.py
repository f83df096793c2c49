"""Parquet files that are damaged anywhere, stores that fail while one is read, and readers that take NULL for empty."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lake_support import Lake
from pyarrow import fs

import judges
from fluss_tiering.lake.damaged_parquet import naming_damage, open_parquet
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from judges import DUCKDB, PYICEBERG, SPARK

ROWS = {"file_path": [f"/lake/{number}.parquet" for number in range(9)], "pos": list(range(9))}


def sound(compression: str) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(ROWS), sink, compression=compression, write_page_checksum=True)
    return sink.getvalue()


def error_of(what: str) -> FlussTieringError:
    return FlussTieringError(ErrorCode.CORRUPT_DATA, f"the file {what}")


def read(store: Any, location: str) -> dict[str, list[Any]]:
    with (
        naming_damage(store, location, error_of),
        store.open_input_file(location) as source,
        open_parquet(source) as parquet,
    ):
        return dict(parquet.read().to_pydict())


def refusal(function: Callable[[], object]) -> str:
    """Return the error that a function raises; nothing if it raises none."""
    try:
        function()
    except FlussTieringError as error:
        return error.message
    except OSError as error:
        return str(error)
    return ""


def damaged(content: bytes) -> list[bytes]:
    """Return the file cut off at each byte, and with one byte broken at each place."""
    broken = [content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :] for at in range(0, len(content), 3)]
    return [content[:at] for at in range(0, len(content), 7)] + broken


@pytest.mark.parametrize("compression", ["zstd", "none"])
def test_a_file_that_is_damaged_anywhere_is_named(tmp_path: Path, compression: str) -> None:
    path = tmp_path / "a.parquet"
    found = set()
    for content in damaged(sound(compression)):
        path.write_bytes(content)
        found.add(refusal(lambda: read(fs.LocalFileSystem(), str(path)))[:20])
    # A broken byte of a statistic is not noticed, and changes no row.
    assert found == {"", "the file is damaged:"}


@pytest.mark.parametrize("compression", ["zstd", "none"])
def test_no_flipped_bit_of_a_page_changes_a_row(tmp_path: Path, compression: str) -> None:
    path = tmp_path / "a.parquet"
    content = sound(compression)
    pages = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    for at in range(4, pages):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with suppress(FlussTieringError):
            assert read(fs.LocalFileSystem(), str(path)) == ROWS, at


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(FlussTieringError, match="the file is missing"):
        read(fs.LocalFileSystem(), str(tmp_path / "a.parquet"))


@dataclass
class Store:
    """A store of one file, of which some reads fail."""

    content: bytes
    failing: set[int]
    reads: int = 0

    def open_input_file(self, _path: str) -> pa.NativeFile:
        store = self

        class File(io.BytesIO):
            def read(self, size: int | None = -1) -> bytes:
                store.reads += 1
                if store.reads in store.failing:
                    raise OSError("the store gave no answer")
                return super().read(size)

        return pa.PythonFile(File(self.content), "r")


def test_the_error_of_a_store_stays_as_it_is() -> None:
    content = sound("zstd")
    whole = Store(content, set())
    assert read(whole, "a") == ROWS
    assert whole.reads >= 2
    for first in range(1, whole.reads + 1):
        # The store answers afterwards, fails once more, or fails from then on.
        for failing in ({first}, {first, first + 1}, {first, first + 2}, set(range(first, 99))):
            with pytest.raises(OSError, match="gave no answer"):
                read(Store(content, failing), "a")


def test_a_failing_store_is_never_given_as_the_damage() -> None:
    content = sound("zstd")
    broken = content[:4] + bytes(20) + content[24:]
    store = Store(broken, set())
    with pytest.raises(FlussTieringError, match="the file is damaged: ") as damaged:
        read(store, "a")
    for failing in range(1, store.reads + 1):
        said = refusal(lambda failing=failing: read(Store(broken, {failing}), "a"))
        assert said == damaged.value.message or "is damaged" not in said


KINDS = {
    "k": "INT NOT NULL",
    "numbers": "ARRAY<INT>",
    "rows": "ARRAY<ROW<a INT>>",
    "by_name": "MAP<STRING, INT>",
    "rows_by_name": "MAP<STRING, ROW<a INT>>",
    "inner": "ROW<numbers ARRAY<INT>>",
    "one": "ROW<a INT>",
    "text": "STRING",
}
NULLS = dict.fromkeys(list(KINDS)[1:])


@pytest.mark.parametrize("judge", [SPARK, DUCKDB, PYICEBERG])
def test_a_null_of_a_nested_type(spark, tmp_path: Path, judge: str):
    lake = Lake(spark, tmp_path, KINDS)
    lake.commit(lake.batch([{"k": 1, **NULLS}, {"k": 2, **NULLS, "inner": {"numbers": None}}]))
    found = judges.read(judge, lake.metadata, spark=spark).select(list(KINDS)).to_pylist()
    # What PyIceberg does is no wish: if it fails here, it was mended, and docs/reference/lake.md says too much.
    others = {"rows": [], "rows_by_name": []} if judge == PYICEBERG else {}
    assert sorted(found, key=itemgetter("k")) == [
        {"k": 1, **NULLS, **others},
        {"k": 2, **NULLS, **others, "inner": {"numbers": None}},
    ]
