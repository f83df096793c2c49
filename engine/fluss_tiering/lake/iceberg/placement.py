"""Which place of a lake table the rows of a bucket are in, and which place each data file belongs to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from fluss_tiering.lake.files import ANY_BUCKET, LakePlace, LiveDataFile
from fluss_tiering.lake.iceberg.deletes import can_be_read
from fluss_tiering.lake.iceberg.layout import has_text_keys
from fluss_tiering.lake.iceberg.validation import spec_fields
from fluss_tiering.lake.names import procedure_call
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo


class Placement:
    """The places of one lake table.

    Args:
        table: The table.
        schema: The schema of the lake table, in Iceberg's JSON.
        specs: All of its partition specs, in Iceberg's JSON.
        spec_id: The id of the spec by which rounds write.
        by_bucket: Whether the last field of that spec is the bucket.
        by_rows: Whether its fields follow from the rows.
    """

    def __init__(
        self,
        table: TableInfo,
        schema: Mapping[str, Any],
        specs: Sequence[Mapping[str, Any]],
        spec_id: int,
        *,
        by_bucket: bool,
        by_rows: bool,
    ) -> None:
        self._table = table
        self._schema = schema
        self._specs = specs
        self._spec_id = spec_id
        self._by_bucket = by_bucket
        self._by_rows = by_rows

    def place(self, bucket: int, partition_values: tuple[str, ...]) -> LakePlace:
        """Return the place of the rows of a bucket of a partition."""
        if self._by_bucket or not self._table.has_primary_key:
            return bucket, partition_values
        return ANY_BUCKET, partition_values[: self.leading_keys]

    @cached_property
    def leading_keys(self) -> int:
        """How many fields of each partition are keys of Fluss's partition: all of these keys, or none.

        There are none if they are no texts, or if files of an older partition spec may not have all of them.
        """
        if not self._by_rows:
            return len(self._table.descriptor.partition_keys)
        descriptor = self._table.descriptor
        wanted = [("identity", key) for key in descriptor.partition_keys]
        if not (wanted and has_text_keys(descriptor)):
            return 0
        names = {field["id"]: field["name"] for field in self._schema["fields"]}
        leads = all(spec_fields(spec, names)[: len(wanted)] == wanted for spec in self._specs)
        return len(wanted) if leads else 0

    def place_of(self, file: LiveDataFile) -> LakePlace | None:
        """Return the place of a data file; None if no place has it, or if executors do not read it or its deletes."""
        if self._by_rows or file.spec_id != self._spec_id or not _can_be_read(file):
            return None
        if None in file.partition:
            # Only somebody else can have written rows without a value of a partition key.
            return None
        if not self._by_bucket:
            return ANY_BUCKET, tuple(map(str, file.partition))
        *values, bucket = file.partition
        return int(bucket), tuple(map(str, values))

    def place_for_deletes(self, file: LiveDataFile) -> LakePlace | None:
        """Return the place in whose index the rows of a data file are; None if they can only be deleted by key.

        Raises:
            FlussTieringError: LAKE_TABLE_MISMATCH if the file's partition follows from its rows, and executors do not
                read it or its deletes. Without them, a row could only be deleted by its key in its own partition, which
                is not known.
        """
        if not self._by_rows:
            return self.place_of(file)
        if not _can_be_read(file):
            rewrite = procedure_call(self._table, "rewrite_data_files", "options => map('rewrite-all', 'true')")
            raise FlussTieringError(
                ErrorCode.LAKE_TABLE_MISMATCH,
                f"rounds cannot write to the lake table {self._table.lake_path}: the data file {file.location} or one "
                "of its delete files is no Parquet file, so that rounds do not find the rows that they update or "
                f"delete; rewrite it: {rewrite}",
            )
        return ANY_BUCKET, file.partition[: self.leading_keys]


def _can_be_read(file: LiveDataFile) -> bool:
    return file.file_format == "PARQUET" and all(map(can_be_read, file.deletes))
