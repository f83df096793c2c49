"""Find out where a lake table is, without an engine: for catalogs that tell it to everybody who may read them."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import quote

from fluss_tiering.lake.names import catalog_name
from fluss_tiering.model.table import TableInfo

SQLITE: Final = re.compile(r"jdbc:sqlite:(/[^?]*)(?:\?.*)?")
"""The URI of a catalog in a SQLite file."""
METADATA_QUERY: Final = (
    "SELECT metadata_location FROM iceberg_tables WHERE catalog_name = {catalog} AND table_namespace = {database} "
    "AND table_name = {table}"
)
"""What a JDBC catalog of Iceberg is asked for the newest metadata file of a table."""
_METADATA_FOLDER: Final = re.compile(r"/metadata/[^/]*\Z")
_TIMEOUT_S: Final = 5.0


def metadata_file(table: TableInfo) -> str | None:
    """Return the location of the newest metadata file of the lake table of a table.

    Returns:
        None if there is no lake table yet, or if the catalog is not a SQLite file that this process can read.
    """
    match = SQLITE.fullmatch(table.lake_catalog_properties.get("uri", ""))
    if table.lake_catalog_properties.get("type") != "jdbc" or match is None or not Path(match[1]).is_file():
        return None
    path = table.lake_path
    query = METADATA_QUERY.format(catalog="?", database="?", table="?")
    values = (catalog_name(table.lake_catalog_properties), path.database, path.table)
    try:
        with closing(sqlite3.connect(f"file:{quote(match[1])}?mode=ro", uri=True, timeout=_TIMEOUT_S)) as catalog:
            found = catalog.execute(query, values).fetchone()
    except sqlite3.Error:
        return None
    return None if found is None else str(found[0])


def folder(table: TableInfo) -> str | None:
    """Return the folder of the lake table of a table; None if it cannot be told without the catalog."""
    file = metadata_file(table)
    return None if file is None else _METADATA_FOLDER.sub("", file)
