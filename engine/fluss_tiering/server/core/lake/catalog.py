"""The properties of the Iceberg catalog that a table is tiered into."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from fluss_tiering.model.table import TableInfo
from fluss_tiering.model.table_options import LAKE_CATALOG_PREFIX
from fluss_tiering.server.core.lake.public_properties import public_properties


@dataclass(frozen=True, slots=True)
class LakeCatalogProperties:
    """The server's catalog properties, and together with them those of each table.

    Attributes:
        server: The catalog properties of the server.
        server_wins: Whether the server's properties override those of a table; otherwise the table's properties win.
    """

    server: Mapping[str, str]
    server_wins: bool

    def of(self, options: Mapping[str, str]) -> dict[str, str]:
        """Return the catalog properties of a table with these options."""
        own = {
            key.removeprefix(LAKE_CATALOG_PREFIX): value
            for key, value in options.items()
            if key.startswith(LAKE_CATALOG_PREFIX)
        }
        return {**own, **self.server} if self.server_wins else {**self.server, **own}

    def complete(self, table: TableInfo) -> TableInfo:
        """Return the table with its catalog properties."""
        return replace(table, lake_catalog_properties=self.of(table.descriptor.properties))


def without_secrets(table: TableInfo) -> TableInfo:
    """Return the table without the secrets in its options and in its catalog properties."""
    descriptor = replace(table.descriptor, properties=public_properties(table.descriptor.properties))
    shown = public_properties(table.lake_catalog_properties, of_catalog=True)
    return replace(table, descriptor=descriptor, lake_catalog_properties=shown)
