"""An Iceberg table as a round sees it: its base, our commits in its history, its files, its commit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields as fields_of
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

import pyarrow as pa

from fluss_tiering.formats.lake_offsets import offsets_from_json, offsets_to_json
from fluss_tiering.formats.micros import lake_type
from fluss_tiering.lake.files import LakeFile, LakePlace, LiveDataFile
from fluss_tiering.lake.iceberg.by_position import PositionFileWriter, look_at_folder
from fluss_tiering.lake.iceberg.by_rows import PartitionedFileWriter, computable
from fluss_tiering.lake.iceberg.commit import IcebergCommitter, locations_of
from fluss_tiering.lake.iceberg.content_file import ContentFiles
from fluss_tiering.lake.iceberg.deletes import live_data_files
from fluss_tiering.lake.iceberg.field_ids import all_ids, all_ids_of_json, with_field_ids
from fluss_tiering.lake.iceberg.java import lake_errors
from fluss_tiering.lake.iceberg.library import JavaPlan, JavaTable, ask, call, delete_locations
from fluss_tiering.lake.iceberg.metadata.description import DescribedTable
from fluss_tiering.lake.iceberg.metadata.locations import FileLocations
from fluss_tiering.lake.iceberg.metadata.own_commits import (
    committed_snapshot,
    history_of,
    mismatch,
    missing_snapshot,
    newest_own_commit,
    require_same_table,
)
from fluss_tiering.lake.iceberg.metadata.properties import write_properties
from fluss_tiering.lake.iceberg.metadata.renewal import RenewedTable
from fluss_tiering.lake.iceberg.metadata.summary import from_summary, offsets_fit
from fluss_tiering.lake.iceberg.metrics.modes import metrics_modes
from fluss_tiering.lake.iceberg.parquet import ParquetFileWriter, write_file_without_rows
from fluss_tiering.lake.iceberg.placement import Placement
from fluss_tiering.lake.iceberg.pruning.bloom_filters import bloom_filters
from fluss_tiering.lake.key_index import IndexStore
from fluss_tiering.lake.names import round_file_name
from fluss_tiering.lake.protocol import CommittedSnapshot, ForeignCommit, LakeCommit, LakeTableSize, ReadOffsets
from fluss_tiering.lake.shared_folder import require_seen
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.partition_by import PartitionTransform
from fluss_tiering.model.table import BUCKET_COLUMN, OFFSET_COLUMN, TIMESTAMP_COLUMN, TableInfo
from fluss_tiering.model.table_options import (
    LAKE_DELETE_FILES,
    LAKE_EXISTING_ROWS,
    keeps_existing_rows,
)

_SYSTEM_TYPES: Final = {
    BUCKET_COLUMN: pa.int32(),
    OFFSET_COLUMN: pa.int64(),
    TIMESTAMP_COLUMN: pa.timestamp("us", "UTC"),
}

_LOCATION_PROVIDER: Final = "write.location-provider.impl"
_INDEX_FOLDER: Final = "_key_index"
"""The folder of the key index in that of the table. Who removes orphan files leaves names with an underscore alone."""
_MAX_PARTITIONS_LOOKED_AT: Final = 64
"""A look reads the list of manifests. If a round has more new partitions, all of them may have rows."""


class IcebergTable(DescribedTable):
    """A `LakeTable`. The JVM's table object never refreshes by itself, so the base does not change."""

    def __init__(
        self,
        table: TableInfo,
        handle: JavaTable,
        description: Mapping[str, Any],
        spec: Mapping[str, Any],
        *,
        reload: Callable[[], JavaTable] | None = None,
        by_bucket: bool = True,
        by_rows: tuple[PartitionTransform, ...] | None = None,
    ) -> None:
        """Take over a table that was loaded.

        Args:
            handle: The table in the JVM.
            description: What it says of itself.
            reload: Loads it again, with credentials that the catalog vends then; None if nothing can be renewed.
            by_bucket: Whether the last field of the spec is the bucket.
            by_rows: The fields of the spec, if they follow from the rows; None if they are the values of the partition
                and perhaps the bucket.
        """
        super().__init__(table, description)
        self._by_bucket = by_bucket
        self._by_rows = by_rows
        self._handle = handle
        self._spec = spec
        self._renewed = RenewedTable(table, handle, reload)

    def names_in(self, snapshot_id: int) -> Mapping[str, str | None]:
        """Return the name that each column of the lake table had in a snapshot; None if the snapshot does not have it.

        Raises:
            FlussTieringError: STORAGE if the lake cannot be read.
        """
        with lake_errors(f"read snapshot {snapshot_id} of the lake table {self._table.lake_path}"):
            found = {field["id"]: field["name"] for field in ask(self._handle, "schemaOf", snapshot_id)["fields"]}
        return {field["name"]: found.get(field["id"]) for field in self._schema["fields"]}

    @property
    def java_table(self) -> JavaTable:
        """The table in the JVM, for maintenance."""
        return self._handle

    def base(self) -> int | None:
        """Return the id of the snapshot that was current when the table was opened; None if there was none."""
        return self._base

    def published(self) -> int | None:
        """Return the id of the newest snapshot of main as it is now; None if there is none."""
        found: int | None = ask(self._handle, "publishedSnapshot")
        return found

    def only_rewritten_since(self, snapshot_id: int) -> bool:
        """Return whether the base has the same rows as an earlier snapshot: see `LakeTable`.

        Raises:
            FlussTieringError: STORAGE if the history cannot be read.
        """
        if self._base == snapshot_id:
            return False
        with lake_errors(f"read the history of the lake table {self._table.lake_path}"):
            return bool(ask(self._handle, "isOnlyRewrittenSince", snapshot_id))

    def unregistered_commit(
        self, known: int | None, read_offsets: ReadOffsets | None = None, *, published: bool = False
    ) -> CommittedSnapshot | None:
        """Return the newest commit of tiering after the snapshot `known`; None if there is none: see `LakeTable`.

        Raises:
            FlussTieringError: LAKE_TABLE_MISMATCH if the lake's history does not match, or has a commit of another
                tiering service whose offsets cannot be read; STORAGE if it cannot be read.
        """
        with lake_errors(f"read the history of the lake table {self._table.lake_path}"):
            newest_of_all = self.published() if published and not self.commits_to_main else self._base
            if newest_of_all is not None and newest_of_all == known:
                return None
            history = history_of(self._handle, known, published=published)
            newest: tuple[int, LakeCommit | ForeignCommit] | None = None
            for snapshot_id, summary in history["commits"][:1]:
                commit = from_summary(summary)
                if commit is not None:
                    newest = snapshot_id, self._own(commit) if isinstance(commit, LakeCommit) else commit
            if known is not None and not history["reached"]:
                raise missing_snapshot(self._table, self._handle, known, on_main=self.commits_to_main or published)
            is_new = known is None and newest is None and (self.commits_to_main or not published)
            if is_new and self._has_rows() and not keeps_existing_rows(self._table.descriptor.properties):
                raise mismatch(
                    self._table,
                    "it holds rows that tiering did not write, while nothing of the table was tiered yet",
                    f"drop or rename the lake table, or set the table option {LAKE_EXISTING_ROWS.key}=keep, and rounds "
                    "add to its rows",
                )
            return committed_snapshot(self._table, newest, known, read_offsets)

    def newest_commit(self) -> CommittedSnapshot | None:
        """Return our newest commit in the base's history; None if there is none.

        Raises:
            FlussTieringError: LAKE_TABLE_MISMATCH if the commit is of another table; STORAGE if it cannot be read.
        """
        with lake_errors(f"read the history of the lake table {self._table.lake_path}"):
            found = newest_own_commit(self._table, self._handle)
            return None if found is None else CommittedSnapshot(found[0], self._own(found[1]))

    def commits(self, read_offsets: ReadOffsets | None) -> Iterator[CommittedSnapshot]:
        """Yield the commits of tiering in the base's history, as far as it was not expired, the newest first.

        Args:
            read_offsets: Reads the offsets of a commit of another tiering service.

        Raises:
            FlussTieringError: STORAGE if the history or offsets cannot be read.
        """
        with lake_errors(f"read the history of the lake table {self._table.lake_path}"):
            # No commit has this property, so that none is the last one.
            history = history_of(self._handle, None, ("",))
        for snapshot_id, summary in history["commits"]:
            commit = from_summary(summary)
            if commit is not None:
                own = self._own(commit) if isinstance(commit, LakeCommit) else commit
                found = committed_snapshot(self._table, (snapshot_id, own), None, read_offsets)
                if found is not None:
                    yield found

    def partitions_with_rows(self, places: Mapping[tuple[str, ...], Collection[int]]) -> Collection[tuple[str, ...]]:
        """Return the partitions that may have rows in one of the named buckets, as of the base.

        Raises:
            FlussTieringError: STORAGE if the lake cannot be read.
        """
        if self._base is None:
            return ()
        if len(places) > _MAX_PARTITIONS_LOOKED_AT or self._by_rows is not None:
            return places.keys()
        with lake_errors(f"look for rows of partitions in the lake table {self._table.lake_path}"):
            asked = [(values, sorted(buckets) if self._by_bucket else None) for values, buckets in places.items()]
            found = ask(self._handle, "haveRows", asked)
            return [values for values, has_rows in zip(places, found, strict=True) if has_rows]

    def is_own_metadata(self, location: str) -> bool:
        """Return whether a metadata file belongs to this table, not to another one that had its name."""
        with lake_errors(f"read the metadata file {location}"):
            return bool(ask(self._handle, "isOwnMetadata", location))

    def delete_locations(self, locations: Iterable[str]) -> list[str]:
        """Delete files that no snapshot refers to; log and return those that could not be deleted."""
        return delete_locations(self._renewed.newest, locations)

    def file_writer(self, *, renew: bool = False) -> ParquetFileWriter:
        """Return the writer with which executors write this table's files: see `LakeTable`."""
        fields = {field["name"]: field for field in self._schema["fields"]}
        types = {column.name: lake_type(column.data_type) for column in self._table.descriptor.columns}
        # In the order in which rows come. Iceberg's readers find columns by their ids.
        if not self.is_clean:
            types |= _SYSTEM_TYPES
        schema = pa.schema([with_field_ids(fields[name], kind) for name, kind in types.items()])
        keys = self._table.descriptor.primary_key
        written = write_properties(self._name, self._properties)
        writer = ParquetFileWriter(
            schema=schema,
            delete_schema=pa.schema([schema.field(key) for key in keys]) if keys else None,
            compression=(written.codec, written.level),
            target_file_bytes=written.target_file_bytes,
            io_properties=self._renewed.io_properties(self.data_location(), renew=renew),
            metrics_modes=metrics_modes(self._schema["fields"], self._properties, self._bounded_fields()),
            shared_folder=self._shared_folder(),
            sorted_by=self._sorted_by(),
            bloom_filters=bloom_filters(self._name, schema, self._properties),
        )
        settings = {each.name: getattr(writer, each.name) for each in fields_of(writer)}
        if self._by_rows is not None:
            settings["partition_by"] = computable(self._table, self._name, self._by_rows)
        if not self._deletes_by_position:
            return writer if self._by_rows is None else PartitionedFileWriter(**settings)
        index_location = self._index_location()
        look_at_folder(index_location)
        return PositionFileWriter(
            **settings,
            table_uuid=self.uuid,
            index_location=index_location,
            format_version=self.format_version,
            base=self._base or 0,
        )

    def _index_location(self) -> str:
        return f"{self.location()}/{_INDEX_FOLDER}"

    def index_store(self) -> IndexStore:
        """Return where the key indexes of the table are, if it has any.

        Raises:
            FlussTieringError: STORAGE if there are no credentials for it.
        """
        return IndexStore(self._index_location(), self._renewed.io_properties(self.data_location(), renew=False))

    def live_files(self, places: Collection[LakePlace]) -> Mapping[LakePlace, Sequence[LiveDataFile]]:
        """Return the data files that the base has of some places: see `LakeTable`.

        Raises:
            FlussTieringError: STORAGE if the lake cannot be read.
        """
        if not (places and self._deletes_by_position):
            if self._by_rows is not None and places:
                raise FlussTieringError(
                    ErrorCode.LAKE_TABLE_MISMATCH,
                    f"the table {self._table.path} has the option {LAKE_DELETE_FILES.key}=equality, while the lake "
                    f"table {self._table.lake_path} is partitioned by its rows, and an equality delete does not reach "
                    "a row in another partition: reset the option",
                )
            return {}
        found: dict[LakePlace, list[LiveDataFile]] = {place: [] for place in places}
        partitions = {values for _, values in places}
        # A table may have thousands of partitions with old rows, and a round changes few of them.
        keys = sorted(partitions) if len(partitions) <= _MAX_PARTITIONS_LOOKED_AT else None
        leading = self.placement.leading_keys
        for file in live_data_files(self._handle, self._base, keys=keys, leading=leading):
            place = self.placement.place_for_deletes(file)
            if place is None:
                # Whose place is not known, or whose keys executors cannot read, can only be deleted from by key.
                return {}
            of_place = found.get(place)
            if of_place is not None:
                of_place.append(file)
        return found

    def place(self, bucket: int, partition_values: tuple[str, ...]) -> LakePlace:
        """Return the place of the rows of a bucket of a partition: see `LakeTable`."""
        return self.placement.place(bucket, partition_values)

    @cached_property
    def placement(self) -> Placement:
        """Where rows and data files are in the table."""
        specs, spec_id = self._described["specs"], self._spec["spec-id"]
        by_rows = self._by_rows is not None
        return Placement(self._table, self._schema, specs, spec_id, by_bucket=self._by_bucket, by_rows=by_rows)

    def keeps_every_column(self, writer: ParquetFileWriter) -> bool:
        """Return whether files of a writer can hold what each column of the lake table has, also before it was added.

        Somebody may have added columns to the lake table alone, with default values for the rows that were there.
        """
        fields = self._schema["fields"]
        has_defaults = any("initial-default" in field for field in fields)
        return not has_defaults and all_ids(writer.schema) == all_ids_of_json(fields)

    def replace_files(self, plan: JavaPlan, replaced: Sequence[LakeFile], new: Sequence[LakeFile]) -> None:
        """Commit data files that have the rows of others, in place of these. Errors are those of the JVM.

        The commit fails if somebody else has deleted rows of the old files since the base, or has replaced one of the
        files, and the new files are then deleted. New rows and deletes of other files do not disturb it.

        Args:
            plan: The plan of the rewrite, with the old data files.
            replaced: The delete files that only delete rows of the old data files.
        """
        require_seen(new)
        described = {
            "base": self._base,
            "deletes": list(map(self._content.to_json, replaced)),
            "new": list(map(self._content.to_json, new)),
        }
        call(plan, "commit", self._renewed.for_commit(), described)

    def piece_location(self, bucket: int, name: str, partition_values: Sequence[str] = ()) -> str:
        """Return where Iceberg's location provider places a file with this name."""
        chosen = self._properties.get(_LOCATION_PROVIDER)
        by = "" if chosen is None else f", whose property {_LOCATION_PROVIDER} is {chosen!r}"
        with lake_errors(f"locate files of the lake table {self._table.lake_path}{by}"):
            return self._locations.location(bucket, name, tuple(partition_values))

    @cached_property
    def _locations(self) -> FileLocations:
        return FileLocations(
            self._handle, self._spec["spec-id"], by_bucket=self._by_bucket, by_rows=self._by_rows is not None
        )

    def commit(
        self,
        pieces: Sequence[Sequence[LakeFile]],
        commit: LakeCommit,
        partition_values: tuple[str, ...] = (),
        removed: Sequence[tuple[int, tuple[str, ...]]] = (),
        *,
        keep: bool = False,
    ) -> int:
        """Make all files visible at once, and return the id of the lake snapshot.

        A commit that only moves offsets gets a data file without rows. The fence of other drivers only sees added
        files. Without one, a driver of an older round could still commit on top.

        Raises:
            FlussTieringError: LAKE_CONFLICT if somebody else has changed rows since the base, or has rewritten data
                files whose rows are deleted by position, and the files are deleted unless they are to be kept; STORAGE
                if the lake failed, or if a file that was written to a folder is not there.
        """
        if not any(pieces):
            name = round_file_name(0, commit.tiering_epoch, commit.commit_id)
            location = f"{self.piece_location(0, name, partition_values)}-no-rows.parquet"
            empty = write_file_without_rows(self.file_writer(), 0, location, partition_values)
            pieces = [[empty if self._by_rows is None else replace(empty, row_partition=(None,) * len(self._by_rows))]]
            keep = False
        written = [file for piece in pieces for file in piece]
        try:
            require_seen(written)
            handle = self._renewed.for_commit()
        except FlussTieringError as error:
            if not (keep and error.code is ErrorCode.LAKE_CONFLICT):
                self.delete_files(written)
            raise
        if not offsets_fit(commit):
            commit = self._with_offsets_file(commit)
        try:
            committer = IcebergCommitter(handle, self._name, self._base, self._content)
            return committer.commit(pieces, commit, removed, keep=keep)
        except FlussTieringError as error:
            if error.code is ErrorCode.LAKE_CONFLICT and commit.lake_offsets is not None:
                self.delete_locations([commit.lake_offsets])
            raise

    @cached_property
    def _content(self) -> ContentFiles:
        return ContentFiles(
            self._schema.get("identifier-field-ids", ()),
            self._spec["spec-id"],
            self._described["specs"],
            by_bucket=self._by_bucket,
        )

    def packed(self, files: Sequence[LakeFile]) -> tuple[LakeFile, ...]:
        """Return the files without their metrics, which they hold in a form that takes less memory."""
        return tuple(map(self._content.packed, files))

    def _with_offsets_file(self, commit: LakeCommit) -> LakeCommit:
        """Write the offsets of a commit into a file, whose name says which round it belongs to."""
        name = round_file_name(0, commit.tiering_epoch, commit.commit_id)
        location = f"{self.data_location()}/{name}-offsets.json"
        with lake_errors(f"write the offsets file {location} of the lake table {self._table.lake_path}"):
            call(self._renewed.newest, "writeFile", location, offsets_to_json(commit.table_id, commit.log_end_offsets))
        return replace(commit, lake_offsets=location)

    def size(self, snapshot_id: int) -> LakeTableSize:
        """Return the size of the table as of a snapshot, from the snapshot's summary."""
        with lake_errors(f"read snapshot {snapshot_id} of the lake table {self._table.lake_path}"):
            summary = ask(self._renewed.newest, "summary", snapshot_id) or {}
            return LakeTableSize(_count(summary.get("total-files-size")), _count(summary.get("total-records")))

    def delete_files(self, files: Sequence[LakeFile]) -> None:
        """Delete files that no commit was tried with."""
        delete_locations(self._renewed.newest, locations_of(files))

    def _own(self, commit: LakeCommit) -> LakeCommit:
        require_same_table(self._table, commit)
        if commit.lake_offsets is None:
            return commit
        try:
            return replace(
                commit, log_end_offsets=offsets_from_json(call(self._handle, "readFile", commit.lake_offsets))
            )
        except ValueError as error:
            raise FlussTieringError(
                ErrorCode.CORRUPT_DATA,
                f"{commit.lake_offsets} with the offsets of a snapshot of the lake table {self._table.lake_path} is "
                f"damaged: {error}; restore the file from a backup",
            ) from error


def _count(text: str | None) -> int | None:
    return None if text is None else int(text)
