"""The five tables of the example: keys, buckets and options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from fluss_tiering.formats.schema import columns_from_arrow
from fluss_tiering.model.table import TableDescriptor, TablePath

DATABASE: Final = "nyc"


@dataclass(frozen=True, slots=True)
class ExampleTable:
    """A table of the example. It is a log table if it has no primary key."""

    name: str
    primary_key: tuple[str, ...] = ()
    bucket_key: str | None = None
    num_buckets: int = 1

    @property
    def path(self) -> TablePath:
        """The path of the table."""
        return TablePath(DATABASE, self.name)

    @property
    def kind(self) -> str:
        """The kind of the table, in words."""
        return "primary key" if self.primary_key else "log"

    def descriptor(self, schema: pa.Schema, freshness: str) -> TableDescriptor:
        """Return the descriptor from which the table is created, given the Arrow schema of its rows."""
        return TableDescriptor(
            columns=columns_from_arrow(schema, self.primary_key),
            primary_key=self.primary_key,
            bucket_keys=(self.bucket_key,) if self.bucket_key else (),
            num_buckets=self.num_buckets,
            properties={"table.datalake.enabled": "true", "table.datalake.freshness": freshness},
        )


TABLES: Final = (
    ExampleTable("flights", num_buckets=4),
    ExampleTable("planes", primary_key=("tailnum",), num_buckets=2),
    ExampleTable("airports", primary_key=("faa",), num_buckets=2),
    ExampleTable("airlines", primary_key=("carrier",)),
    ExampleTable("weather", primary_key=("origin", "time_hour"), bucket_key="origin", num_buckets=3),
)
