"""A bucket's RocksDB by itself."""

from pathlib import Path

import pytest
from refusals import refused

from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.storage.embedded.rocksdb import (
    KvState,
    RocksDbMemory,
    RocksDbStore,
    StoreChanges,
    reporting_rocksdb_errors,
)


def test_a_store_that_cannot_be_flushed_is_closed_all_the_same(tmp_path: Path) -> None:
    """As when a folder may not be written for a while: what stays open could not be opened until the server ends."""
    folder = tmp_path / "db"
    memory = RocksDbMemory()
    store = RocksDbStore(folder, memory)
    store.apply(StoreChanges([b"key"], [b"value"], []), KvState(1, 1))
    # A folder in the place of the next file stops root, too, whom permissions do not stop.
    in_the_way = [folder / f"{number:06}.sst" for number in range(50)]
    for each in in_the_way:
        each.mkdir()
    with refused(ErrorCode.STORAGE, str(folder), "Is a directory"):
        store.close()
    for each in in_the_way:
        each.rmdir()
    again = RocksDbStore(folder, memory)
    assert again.state == KvState(), "the bucket's log has the change"
    again.close()


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("Permission denied", "check the permissions of the folder and of its files, and who runs the server"),
        ("Operation not permitted", "check the permissions of the folder and of its files, and who runs the server"),
        ("No space left on device", "check the disk's free space and health"),
        ("Input/output error", "check the disk's free space and health"),
    ],
)
def test_what_the_system_refuses_is_told_with_what_to_do(tmp_path: Path, reason: str, remedy: str) -> None:
    """RocksDB gives the reason of the system as a text."""
    with refused(ErrorCode.STORAGE, str(tmp_path), reason, remedy), reporting_rocksdb_errors(tmp_path):
        raise Exception(f"IO error: While open a file for appending: {tmp_path}/000008.sst: {reason}")  # noqa: TRY002
