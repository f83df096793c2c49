"""Writers that know which rows remain, and scans that the log continues: both must give the same rows."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from engine_support import SCHEMA, put
from fluss_tiering.client import TieringClient
from fluss_tiering.formats.log.batch import ChangeType
from fluss_tiering.model.table import TableBucket, TableInfo, WriteKind
from fluss_tiering.storage.protocol import SplitReader

WRITERS = 8
KEYS = 800


class Writer:
    """A writer that upserts and deletes keys of its own at random, and knows the rows that remain."""

    def __init__(self, client: TieringClient, table: TableInfo, number: int, seed: int) -> None:
        self.names: dict[int, str] = {}
        self._client = client
        self._table = table
        self._keys = range(number, KEYS, WRITERS)
        self._random = random.Random(seed * WRITERS + number)

    def write(self, times: int) -> None:
        for time in range(times):
            chosen = self._random.sample(self._keys, self._random.randint(1, 20))
            if self._random.random() < 0.3:
                rows = pa.table({"id": chosen}, schema=pa.schema([SCHEMA.field("id")]))
                list(self._client.write_rows(self._table.path, WriteKind.DELETE, [rows]))
                for key in chosen:
                    self.names.pop(key, None)
            else:
                names = {key: f"{time} {self._random.random()}" for key in chosen}
                put(self._client, self._table, names)
                self.names |= names


def scanned(client: TieringClient, table: TableInfo) -> tuple[dict[TableBucket, int], dict[int, str]]:
    """Return the log offset of each bucket and all rows, and check that no row comes twice."""
    names: dict[int, str] = {}
    with client.scan(table, batch_size_bytes=2000) as scan:
        for batch in scan:
            found = dict(zip(batch["id"].to_pylist(), batch["name"].to_pylist(), strict=True))
            assert len(found) == batch.num_rows
            assert not names.keys() & found.keys()
            names |= found
        return dict(scan.log_offsets), names


def replay(
    client: TieringClient,
    reader: SplitReader,
    table: TableInfo,
    offsets: dict[TableBucket, int],
    names: dict[int, str],
) -> None:
    """Apply the log from these offsets on, and check that each change fits the row that it changes."""
    for info in client.list_buckets([table.path])[table.path]:
        for batch in reader.read_log(table, info.bucket, offsets[info.bucket], info.log_end_offset):
            rows = zip(
                batch.change_types, batch.records["id"].to_pylist(), batch.records["name"].to_pylist(), strict=True
            )
            for kind, key, name in rows:
                match ChangeType(kind):
                    case ChangeType.INSERT:
                        assert key not in names
                        names[key] = name
                    case ChangeType.UPDATE_BEFORE:
                        assert names[key] == name
                    case ChangeType.UPDATE_AFTER:
                        assert key in names
                        names[key] = name
                    case ChangeType.DELETE:
                        assert names.pop(key) == name


def check_handover(
    client: TieringClient, writers_client: TieringClient, reader: SplitReader, table: TableInfo, rounds: int
) -> None:
    """Scan while others write, again and again, and check that each scan with the log behind it is the table."""
    writers = [Writer(writers_client, table, number, rounds) for number in range(WRITERS)]
    scans = 0
    with ThreadPoolExecutor(WRITERS) as pool:
        for _ in range(rounds):
            writing = [pool.submit(writer.write, 2) for writer in writers]
            taken = [scanned(client, table)]
            while not all(each.done() for each in writing):
                taken.append(scanned(client, table))
            for each in writing:
                each.result(60)
            expected = {key: name for writer in writers for key, name in writer.names.items()}
            for offsets, names in taken:
                replay(client, reader, table, offsets, names)
                assert names == expected
            scans += len(taken)
    # The last scan of each round begins while a writer is still at work. The scans before it run during the writes.
    assert scans > 2 * rounds
