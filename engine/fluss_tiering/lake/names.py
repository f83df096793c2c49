"""Names in the lake: of its catalog, and of the files that a round writes, which name the round.

By the round in its name, an orphan file can be assigned to it.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from typing import Final

from fluss_tiering.model.table import TableInfo

DEFAULT_CATALOG_NAME: Final = "fluss-iceberg-catalog"
"""The name of a lake catalog that is given none, as in Fluss (its `IcebergCatalogUtils`).

A JDBC catalog keeps tables by its name, so that another one would not find the tables that Fluss has made.
"""
_ROUND_FILE: Final = re.compile(r"(?:^|/)\d{5,}-e(\d+)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}-[^/]*$")


def round_file_name(piece: int, tiering_epoch: int, attempt: uuid.UUID | str) -> str:
    """Return the beginning of the names of a piece's files.

    The "e" before the epoch distinguishes them from Spark's files, which have a task id in its place.

    Args:
        piece: The number of the piece in the round.
        attempt: The UUID of this attempt to run the round, or to commit it.
    """
    return f"{piece:05d}-e{tiering_epoch}-{attempt}"


def epoch_of_file(location: str) -> int | None:
    """Return the tiering epoch of the round that wrote a file; None for a file of somebody else."""
    match = _ROUND_FILE.search(location)
    return None if match is None else int(match.group(1))


def catalog_name(properties: Mapping[str, str]) -> str:
    """Return the name that a lake catalog with these properties has in Spark."""
    return properties.get("name", DEFAULT_CATALOG_NAME)


def lake_table_name(table: TableInfo) -> str:
    """Return the name of a table's lake table in Spark SQL."""
    path = table.lake_path
    return ".".join(map(quoted, (catalog_name(table.lake_catalog_properties), path.database, path.table)))


def procedure_call(table: TableInfo, procedure: str, arguments: str) -> str:
    """Return the call of a procedure of Iceberg for a table's lake table, in Spark SQL."""
    catalog = quoted(catalog_name(table.lake_catalog_properties))
    return f"CALL {catalog}.system.{procedure}(table => '{table.lake_path}', {arguments})"


def quoted(name: str) -> str:
    """Return a name as it is written in Spark SQL."""
    return "`" + name.replace("`", "``") + "`"
