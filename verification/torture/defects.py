"""Defects that were mended, or might come, put in by a small patch, to show that a run finds them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from fluss_tiering.formats.grouping import last_per_key
from fluss_tiering.formats.log.batch import ChangeType
from fluss_tiering.lake.iceberg import parquet
from fluss_tiering.lake.iceberg.by_position import found_rows
from fluss_tiering.lake.iceberg.metadata import summary
from fluss_tiering.lake.iceberg.metrics import bounds, collector, modes
from fluss_tiering.lake.names import quoted
from fluss_tiering.model.table import TableInfo
from fluss_tiering.model.table_options import record_expiry
from fluss_tiering.spark.maintenance import plan as maintenance_plan
from fluss_tiering.spark.round import pieces, plan
from fluss_tiering.storage import rocksdb_files


def _replace(owner: object, name: str, new: object) -> Any:
    """Put something in the place of an attribute, and return what it was. There must be one, or nothing is broken."""
    original = getattr(owner, name)
    setattr(owner, name, new)
    return original


@dataclass(frozen=True)
class Planted:
    """A defect, and a pattern for what finds it.

    Attributes:
        switch_on: Patches the code of this process, for good. The first line of its docstring says what is wrong then.
        shown_by: A regular expression for the kind of what is found.
    """

    switch_on: Callable[[], None]
    shown_by: str


def _bounds_of_other_row_groups() -> None:
    """The bounds of a column miss the row groups that have no bounds of it."""
    original = collector.FileMetricsCollector._add_bounds

    def known_ones_only(self: Any, found: Any, number: int, extremes: Any) -> None:
        original(self, found, number, [each for each in extremes if each is not None])

    _replace(collector.FileMetricsCollector, "_add_bounds", known_ones_only)
    _replace(collector.FileMetricsCollector, "_find_long", lambda *_: None)


def _dates_of_python() -> None:
    """The bounds of dates and timestamps are made from values of Python, which ends at the year 9999."""
    original = collector.encoded

    def encoded(kind: pa.DataType, value: Any, **how: Any) -> Any:
        if pa.types.is_date(kind):
            dt.date.fromordinal(719_163 + value)
        elif pa.types.is_timestamp(kind):
            dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=value)  # noqa: DTZ001 - as pyiceberg does it
        return original(kind, value, **how)

    _replace(collector, "encoded", encoded)
    _replace(collector, "_FAILURES", ())


def _surrogates() -> None:
    """The upper bound of a text may be a surrogate, which UTF-8 cannot encode."""
    _replace(bounds, "_next_code_point", lambda point: None if point == 0x10FFFF else point + 1)
    _replace(collector, "_FAILURES", ())


def _strict_metrics() -> None:
    """A malformed property `write.metadata.metrics.*` fails the round."""
    original = modes._parsed

    def parsed(key: str, text: str | None) -> Any:
        mode = original(key, text)
        if text is not None and mode is None:
            raise ValueError(f"Unsupported metrics mode: {text}")
        return mode

    _replace(modes, "_parsed", parsed)


def _begins_at_zero() -> None:
    """A table whose log no longer begins at 0 is read from 0 on."""
    original = plan._range

    def begins_at_zero(info: Any, tiered: int, leased: Any, *, begins: bool) -> Any:
        return original(info, tiered, leased, begins=False)

    _replace(plan, "_range", begins_at_zero)


def _all_in_memory() -> None:
    """All records of a piece are held in memory at once."""

    def reduce_log(reducer: Any, piece: Any, reader: Any, writer: Any, watch: Any) -> int:
        batches = list(reader.read_log(reducer.table, piece.bucket, piece.start_offset, piece.end_offset))
        records = pa.Table.from_batches([batch.records for batch in batches])
        kinds = np.concatenate([batch.change_types for batch in batches])
        offsets = np.concatenate([batch.base_offset + np.arange(batch.records.num_rows) for batch in batches])
        last = last_per_key(records, reducer.table.descriptor.primary_key, kinds)
        live = last[kinds[last] != ChangeType.DELETE]
        if piece.deletes:
            writer.delete(_one_batch(records.select(reducer.table.descriptor.primary_key).take(last)))
        writer.write(_one_batch(records.take(live)), offsets[live], np.zeros(len(live), np.int64))
        return len(kinds)

    original = rocksdb_files.entries_of
    _replace(rocksdb_files, "entries_of", lambda db, from_key, to_key, _: original(db, from_key, to_key, 1 << 40))
    _replace(pieces, "_reduce_log", reduce_log)


def _one_batch(rows: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([column.combine_chunks() for column in rows.columns], schema=rows.schema)


def _hidden_nulls() -> None:
    """Values that hide below a null ROW are not removed before a file is written."""
    _replace(parquet, "without_hidden_nulls", lambda array: array)


def _all_offsets_in_summaries() -> None:
    """The summary of a snapshot has the offsets of all buckets, however many there are."""
    _replace(summary, "_MAX_OFFSETS_LENGTH", 1 << 40)


def _in_one_partition() -> None:
    """Rows are looked for in the files of one partition only, so that one that moved stays where it was, too."""
    original = found_rows.FoundRows.add

    def add(self: Any, matches: Any) -> None:
        original(self, matches)
        partitions = {location: file.partition for location, file in self._live.items()}
        for location, partition in partitions.items():
            if partition != next(iter(partitions.values())):
                self._rows.pop(location, None)

    _replace(found_rows.FoundRows, "add", add)


def _young_records() -> None:
    """Records that have a time leave the lake, whether they are old or not."""

    def all_of_them(table: TableInfo, now: dt.datetime | None = None) -> str | None:
        expiry = record_expiry(table.descriptor.properties)
        return None if expiry is None else f"{quoted(expiry[0])} IS NOT NULL"

    _replace(maintenance_plan, "expired_records", all_of_them)


def _each_acquire_begins() -> None:
    """An acquire task that runs again begins another attempt, whatever runs under the one before."""
    from airflow_provider_fluss import attempt  # noqa: PLC0415 - Airflow takes seconds, and no other defect needs it

    _replace(attempt, "_why_it_lives", lambda *_, **__: None)


DEFECTS: Final[Mapping[str, Planted]] = {
    "D40": Planted(_bounds_of_other_row_groups, "other rows"),
    "D41 dates": Planted(_dates_of_python, "a round fails: .*OverflowError"),
    "D41 surrogates": Planted(_surrogates, "a round fails: .*UnicodeEncodeError"),
    "D41 properties": Planted(_strict_metrics, "a round fails: .*ValueError"),
    "D42": Planted(_hidden_nulls, "a round fails: .*declared non-nullable"),
    "D43": Planted(_all_in_memory, "too much memory"),
    "D44": Planted(_begins_at_zero, "a round fails"),
    "D49": Planted(_all_offsets_in_summaries, "summary is large"),
    "moved rows": Planted(_in_one_partition, "other rows"),
    "young records": Planted(_young_records, "other rows"),
    "D60": Planted(_each_acquire_begins, "cancelled by another attempt"),
}
"""The defects, by their numbers, or by what they do if they were never there."""
