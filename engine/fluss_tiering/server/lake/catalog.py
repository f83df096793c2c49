"""The Iceberg catalog that a table is tiered into."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableInfo
from fluss_tiering.server.settings import ServerSettings
from fluss_tiering.server.tiering.options import ICEBERG_PREFIX


class LakeCatalog:
    """The server's catalog properties, and with them those of each table."""

    def __init__(self, settings: ServerSettings) -> None:
        self._of_cluster = bool(settings.fluss)
        self._lake_dir = None if settings.lake_catalog or settings.fluss else settings.data_dir / "lake"
        self._properties = (
            settings.lake_catalog
            if self._lake_dir is None
            else {
                "type": "jdbc",
                "name": "fluss_lake",
                # Several drivers share the file: without the time-out the second writer fails at once.
                "uri": f"jdbc:sqlite:{self._lake_dir}/catalog.db?busy_timeout=30000",
                "jdbc.schema-version": "V1",
                "warehouse": f"file:{self._lake_dir}/warehouse",
            }
        )

    def make_folders(self) -> None:
        """Makes the default catalog's folder, which SQLite does not make. Raises STORAGE."""
        if self._lake_dir is None:
            return
        try:
            (self._lake_dir / "warehouse").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FlussTieringError(
                ErrorCode.STORAGE, f"cannot make the lake's folder {self._lake_dir}: {error}; check its permissions"
            ) from error

    def properties(self, options: Mapping[str, str]) -> dict[str, str]:
        """The catalog properties of a table with these options: the server's, overridden by the table's own.

        The other way round on a Fluss cluster: it gives every table the properties of its own lake, without secrets,
        which the server's complete and override.
        """
        own = {
            key.removeprefix(ICEBERG_PREFIX): value for key, value in options.items() if key.startswith(ICEBERG_PREFIX)
        }
        return {**own, **self._properties} if self._of_cluster else {**self._properties, **own}

    def complete(self, table: TableInfo) -> TableInfo:
        """The table with its catalog properties."""
        return replace(table, lake_catalog_properties=self.properties(table.descriptor.properties))
