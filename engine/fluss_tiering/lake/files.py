"""What a round knows of the files of a lake table: those it writes, and those that live there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from fluss_tiering.lake.key_index import PieceKeys

RowPartition = tuple[Any, ...]
"""The values of the fields of a lake's partition, in JSON: a number, a text or null for each."""

LakePlace = tuple[int, tuple[str, ...]]
"""A part of a lake table that has a key index of its own: a bucket, and the values of its partition. The bucket is
`ANY_BUCKET` if data files do not tell buckets apart, and there are no values if they do not tell partitions apart."""
ANY_BUCKET: Final = -1


class FileContent(StrEnum):
    """The content of a file, in Iceberg's terms (FileContent of the table spec)."""

    DATA = "data"
    EQUALITY_DELETES = "equality-deletes"
    POSITION_DELETES = "position-deletes"


@dataclass(frozen=True, slots=True)
class FileMetrics:
    """What readers know of a file without opening it, in Iceberg's terms (`data_file` of the table spec).

    The maps are keyed by field id. A column without an entry is not known.

    Attributes:
        record_count: The number of rows.
        split_offsets: The positions of the row groups in the file, in bytes.
        column_sizes: The size of a column in the file, in bytes.
        value_counts: The number of values, with nulls and NaNs.
        null_value_counts: The number of nulls.
        nan_value_counts: The number of NaNs.
        lower_bounds: A value in Iceberg's binary form. All values but nulls and NaNs are equal to it or above.
        upper_bounds: A value in Iceberg's binary form. All values but nulls and NaNs are equal to it or below.
    """

    record_count: int
    split_offsets: tuple[int, ...] = ()
    column_sizes: dict[int, int] = field(default_factory=dict)
    value_counts: dict[int, int] = field(default_factory=dict)
    null_value_counts: dict[int, int] = field(default_factory=dict)
    nan_value_counts: dict[int, int] = field(default_factory=dict)
    lower_bounds: dict[int, bytes] = field(default_factory=dict)
    upper_bounds: dict[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class VectorPlace:
    """Where a deletion vector lies in its Puffin file.

    Attributes:
        offset: Its position in the file, in bytes.
        size_bytes: Its size with its length, its magic number and its checksum.
    """

    offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class LakeFile:
    """A file that an executor has written, and that no lake snapshot refers to yet.

    A deletion vector is a file of its own here, too. All vectors of one Puffin file have its location and its size.

    Attributes:
        content: What the file holds.
        bucket: The bucket of the rows. Together with the partition values it is the lake's partition.
        size_bytes: The size of the file.
        metrics: Counts, sizes and bounds, by which readers skip the file.
        partition_values: The value of each partition key of the table.
        packed: The file as `LakeTable.packed` describes it; empty before.
        referenced: The locations of the data files whose rows a file of position deletes deletes.
        vector: Where a deletion vector lies in the file; None for every other content.
        replaces: The live delete files whose deletes this one holds, too. They are removed in the commit that adds it.
        row_partition: The values of the lake's partition fields, if these follow from the rows; None if the bucket and
            the partition values are the partition.
        spec_id: The partition spec that has these fields; None for the one with which the round writes.
    """

    content: FileContent
    bucket: int
    location: str
    size_bytes: int
    metrics: FileMetrics
    partition_values: tuple[str, ...] = ()
    packed: bytes = field(default=b"", repr=False)
    referenced: tuple[str, ...] = ()
    vector: VectorPlace | None = None
    replaces: tuple[LakeFile, ...] = ()
    row_partition: RowPartition | None = None
    spec_id: int | None = None


@dataclass(frozen=True, slots=True)
class LiveDataFile:
    """A data file of a lake snapshot.

    Attributes:
        location: The location, exactly as the lake table's metadata has it.
        partition: The values of its partition fields in the order of the spec.
        rows: The number of rows, also deleted ones.
        deletes: The live position delete files and deletion vectors that may delete some of its rows.
        has_equality_deletes: Whether equality deletes may delete further rows.
        spec_id: The id of the partition spec by which it was written.
        file_format: Its format in upper case, for example PARQUET.
    """

    location: str
    partition: tuple[Any, ...]
    rows: int
    deletes: tuple[LakeFile, ...] = ()
    has_equality_deletes: bool = False
    spec_id: int = 0
    file_format: str = "PARQUET"


@dataclass(frozen=True, slots=True)
class NotedPlace:
    """A place with pieces whose keys were noted, and whose deletes are to be written.

    Attributes:
        location: The beginning of the locations of the delete files.
        partition_values: The value of each partition key of the table.
        live: The data files that the base has of the place.
        pieces: The keys of the pieces by ordinal. The deletes of an ordinal are for the rows of the base and of all
            smaller ordinals.
        added: The data files that the pieces have written.
    """

    bucket: int
    location: str
    partition_values: tuple[str, ...]
    live: tuple[LiveDataFile, ...]
    pieces: tuple[tuple[PieceKeys, ...], ...]
    added: Mapping[str, RowPartition] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RebasedPlace:
    """A place whose deletes by position are written anew, for a newer base with the same rows.

    Attributes:
        location: The beginning of the locations of the new delete files.
        partition_values: The value of each partition key of the table.
        live: The data files that the newer base has of the place.
        deletes: The delete files that were written for the older base.
        before: The data files of the older base whose rows these delete files delete.
        added: The data files that the round itself has written. Their rows are where they were.
    """

    bucket: int
    location: str
    partition_values: tuple[str, ...]
    live: tuple[LiveDataFile, ...]
    deletes: tuple[LakeFile, ...]
    before: tuple[LiveDataFile, ...]
    added: Mapping[str, RowPartition]
