"""What an Iceberg table says of itself, as its metadata file had it when it was opened."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from fluss_tiering.lake.iceberg.layout import SORT_COLUMN
from fluss_tiering.lake.shared_folder import local_path
from fluss_tiering.model.table import BUCKET_COLUMN, TableInfo
from fluss_tiering.model.table_options import LAKE_COMMIT_BRANCH, commit_branch_of, delete_files_of


class DescribedTable:
    """An Iceberg table by its description, without any call of the JVM.

    Args:
        table: The table that is tiered into it.
        description: Its answer to `describe`: the schema, the folders, the properties and the sort order.
    """

    def __init__(self, table: TableInfo, description: Mapping[str, Any]) -> None:
        self._table = table
        self._described = description
        self._schema = description["schema"]
        self._properties: Mapping[str, str] = description["properties"]
        self._base: int | None = description.get("snapshot")

    @property
    def is_clean(self) -> bool:
        """Whether the table has the clean layout, without `__bucket`, `__offset` and `__timestamp`."""
        return all(field["name"] != BUCKET_COLUMN for field in self._schema["fields"])

    @property
    def table(self) -> TableInfo:
        """The table, under the schema that the lake table follows."""
        return self._table

    @property
    def commits_to_main(self) -> bool:
        """Whether rounds commit to the main branch, which readers see."""
        return commit_branch_of(self._table.descriptor.properties) == LAKE_COMMIT_BRANCH.default

    def location(self) -> str:
        """Return the table's own folder."""
        return str(self._described["location"]).rstrip("/")

    def data_location(self) -> str:
        """Return the folder of the table's data files."""
        return self._properties.get("write.data.path") or f"{self.location()}/data"

    def metadata_location(self) -> str:
        """Return the folder of the table's metadata files."""
        return self._properties.get("write.metadata.path") or f"{self.location()}/metadata"

    @property
    def format_version(self) -> int:
        """The version of Iceberg's format that the table has."""
        return int(self._described["formatVersion"])

    @property
    def metadata_file(self) -> str:
        """The location of the metadata file from which the table was opened."""
        return str(self._described["metadataFile"])

    @property
    def keeps_all_files(self) -> bool:
        """Whether Iceberg refuses to expire snapshots and to delete orphan files of the table.

        Nessie's catalog asks for it, since what one of its branches does not need may belong to another one.
        """
        return self._properties.get("gc.enabled", "true").lower() == "false"

    @property
    def snapshots_and_metadata_files(self) -> tuple[int, int]:
        """The numbers of snapshots and of metadata files that the table names."""
        return self._described["snapshots"], self._described["metadataFiles"]

    @property
    def uuid(self) -> str:
        """The UUID of the Iceberg table."""
        return str(self._described["uuid"])

    @property
    def _name(self) -> str:
        """The name of the table in the catalog."""
        return str(self._described["name"])

    @property
    def _deletes_by_position(self) -> bool:
        descriptor = self._table.descriptor
        return bool(descriptor.primary_key) and delete_files_of(descriptor.properties) == "position"

    def _bounded_fields(self) -> set[int]:
        """Return the ids of the fields of the key and of the sort order."""
        order = {SORT_COLUMN, *self._sorted_by()}
        sorted_by = {field["id"] for field in self._schema["fields"] if field["name"] in order}
        return {*self._schema.get("identifier-field-ids", ()), *sorted_by}

    def _sorted_by(self) -> tuple[str, ...]:
        """Return the columns of the table's sort order; without one, the key columns that can differ within a file.

        The order counts up to the first field that is not a column of the table in ascending order.
        """
        descriptor = self._table.descriptor
        names = {field["id"]: field["name"] for field in self._schema["fields"]}
        wanted = itertools.takewhile(
            lambda field: field["transform"] == "identity" and field["direction"] == "asc",
            self._described["sortOrder"]["fields"],
        )
        columns = [column.name for column in descriptor.columns]
        order = tuple(itertools.takewhile(columns.__contains__, (names[field["source-id"]] for field in wanted)))
        if order:
            return order
        return tuple(key for key in descriptor.primary_key if key not in descriptor.partition_keys)

    def _shared_folder(self) -> str | None:
        """Return a folder of the lake table that the driver sees, if the files are written beside it."""
        own = f"{self.location()}/"
        metadata = self.metadata_location()
        path = local_path(metadata)
        if path is None or not (metadata.startswith(own) and self.data_location().startswith(own)):
            return None
        return metadata if path.is_dir() else None

    def _has_rows(self) -> bool:
        return self._base is not None and self._described["summary"].get("total-data-files") != "0"
