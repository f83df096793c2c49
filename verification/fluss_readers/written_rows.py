"""Rows of every scalar type, and what the programs of `java/` print of them."""

from __future__ import annotations

import datetime as dt
import json
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from fluss_tiering.formats.schema import arrow_schema
from fluss_tiering.model.table import Column, DataType, DataTypeRoot, TableDescriptor

COLUMNS = tuple(
    Column(name, DataType.parse(text))
    for name, text in (
        ("id", "BIGINT NOT NULL"),
        ("tiny", "TINYINT"),
        ("small", "SMALLINT"),
        ("number", "INT"),
        ("yes", "BOOLEAN"),
        ("single", "FLOAT"),
        ("price", "DOUBLE"),
        ("code", "CHAR(4)"),
        ("name", "STRING"),
        ("raw", "BYTES"),
        ("day", "DATE"),
        ("at", "TIMESTAMP(6)"),
        ("seen", "TIMESTAMP_LTZ(6)"),
        ("total", "DECIMAL(12, 2)"),
        ("wide", "DECIMAL(30, 5)"),
    )
)
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - of a TIMESTAMP without a zone


def descriptor(*, primary_key: bool, partition_keys: Sequence[str] = (), **properties: str) -> TableDescriptor:
    """A table of these columns, behind them those of the partition keys; a primary key is the id and these."""
    options = {"table.datalake.enabled": "true", "table.datalake.freshness": "1s"}
    return TableDescriptor(
        columns=(*COLUMNS, *(Column(name, DataType.parse("STRING NOT NULL")) for name in partition_keys)),
        primary_key=("id", *partition_keys) if primary_key else (),
        bucket_keys=("id",) if primary_key else (),
        partition_keys=tuple(partition_keys),
        num_buckets=2,
        properties={**options, **properties},
    )


def rows(ids: Iterable[int], *, seed: int = 0, **partition: str) -> pa.Table:
    """A row for each id, the same for the same seed; a tenth of the other values is null.

    `partition` is key=value, for a table with these partition keys.
    """
    table = pa.Table.from_pylist([_row(each, seed) for each in ids], schema=arrow_schema(COLUMNS))
    for key, value in partition.items():
        table = table.append_column(pa.field(key, pa.string(), nullable=False), pa.array([value] * len(table)))
    return table


def printed(table: pa.Table) -> Counter[str]:
    """As `conftest.Read.values`."""
    with_zone = {column.name for column in COLUMNS if column.data_type.root is DataTypeRoot.TIMESTAMP_LTZ}
    return Counter(
        json.dumps([_printed(_in_utc(value) if name in with_zone else value) for name, value in row.items()])
        for row in table.to_pylist()
    )


def _row(row_id: int, seed: int) -> dict[str, Any]:
    chance = random.Random(f"{seed} {row_id}")
    # Fluss 0.9.1 cannot read a log with a part of a millisecond before 1970 (its `ArrowTimestampNtzColumnVector`).
    moment = _EPOCH + dt.timedelta(microseconds=chance.randrange(4 * 10**15))
    values = {
        "tiny": chance.randrange(-128, 128),
        "small": chance.randrange(-(2**15), 2**15),
        "number": chance.randrange(-(2**31), 2**31),
        "yes": chance.random() < 0.5,
        "single": chance.randrange(-(2**20), 2**20) / 64,
        "price": chance.uniform(-1e6, 1e6),
        "code": "".join(chance.choices("abcdé", k=4)),
        "name": chance.choice(["", 'q"uote\\', "naïve 雪", "x" * 300]) + str(row_id),
        "raw": chance.randbytes(chance.randrange(20)),
        "day": moment.date(),
        "at": moment,
        "seen": moment.replace(tzinfo=dt.UTC),
        "total": Decimal(chance.randrange(-(10**12) + 1, 10**12)).scaleb(-2),
        "wide": Decimal(chance.randrange(-(10**29), 10**29)).scaleb(-5),
    }
    return {"id": row_id, **{name: None if chance.random() < 0.1 else value for name, value in values.items()}}


def _in_utc(value: dt.datetime | None) -> dt.datetime | None:
    # Fluss's Arrow batches have no zone for it.
    return None if value is None else value.replace(tzinfo=dt.UTC)


def _printed(value: Any) -> Any:
    match value:
        case dt.datetime():
            return value.isoformat(timespec="microseconds")
        case dt.date():
            return value.isoformat()
        case bytes():
            return value.hex()
        case Decimal():
            return f"{value:f}"
        case _:
            return value
