"""KV snapshots whose values have a tag, which coordinators of Fluss 1.0.0 alone ask for: RocksDB files of the tests."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from fluss_tables import COLUMNS, rows
from rocksdict import Options, Rdict

from fluss_tiering.formats.compacted.row import encode_values
from fluss_tiering.formats.keys import encode_iceberg_keys

_TAG = (1_790_000_000_000).to_bytes(8, "big")
_FLUSHED_ROWS = 300


def tagged_files(folder: Path, count: int, without: Collection[int] = ()) -> dict[str, str]:
    """Write a RocksDB with the rows of ids below `count`, in several table files: name -> path, as a snapshot has them.

    Args:
        folder: The folder of the RocksDB.
        count: The number of rows.
        without: The ids that are left out, as if they had expired.
    """
    stored = rows(0, count)
    keys = encode_iceberg_keys(stored, COLUMNS[0]).to_pylist()
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_disable_auto_compactions(True)
    with Rdict(str(folder), options) as database:
        for number, (key, value) in enumerate(zip(keys, encode_values(stored, COLUMNS, 1).to_pylist(), strict=True)):
            if number not in without:
                database[key] = _TAG + value
            if number % _FLUSHED_ROWS == _FLUSHED_ROWS - 1:
                database.flush()
    names = [each.name for each in folder.iterdir() if not each.name.startswith(("LO", "IDENTITY"))]
    return {name: f"file:{folder / name}" for name in names}
