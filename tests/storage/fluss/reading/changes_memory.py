"""Print how many rows there are after 800 changes of 1 MB each, and by how many bytes the process grew meanwhile."""

import json
import os
import resource
import sys

import pyarrow as pa

from fluss_tiering.formats.log.batch import ChangeType, LogBatch
from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.table import Column, DataType, TableDescriptor, TableInfo, TablePath
from fluss_tiering.storage.fluss.reading.kv_changes import KvChanges

COLUMNS = (Column("id", DataType.parse("BIGINT NOT NULL")), Column("payload", DataType.parse("BYTES")))
TABLE = TableInfo(1, TablePath("db", "t"), 1, TableDescriptor(COLUMNS, ("id",), ("id",), 1, {}), 0)
ROWS = 800
ROWS_IN_BATCH = 8


def log():
    for first in range(0, ROWS, ROWS_IN_BATCH):
        ids = range(first, first + ROWS_IN_BATCH)
        records = pa.record_batch([list(ids), [os.urandom(1_000_000) for _ in ids]], schema=arrow_schema(COLUMNS))
        yield LogBatch(first, 0, pa.array([ChangeType.INSERT] * ROWS_IN_BATCH, pa.uint8()).to_numpy(), records)


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


before = peak()
changes = KvChanges(TABLE, log())
rows = sum(batch.num_rows for batch in changes.over([], None))
changes.close()
sys.stdout.write(json.dumps([rows, peak() - before]))
