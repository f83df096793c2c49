"""Tell whether the server tiers tables at all. A task whose table was dropped cannot succeed by another try."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table_options import LAKE_ENABLED, is_set

if TYPE_CHECKING:
    from fluss_tiering.client import TieringClient
    from fluss_tiering.model.table import TableInfo, TablePath

WRONG_TABLES: Final = frozenset({ErrorCode.INVALID_TABLE, ErrorCode.DATABASE_NOT_EXIST, ErrorCode.TABLE_NOT_EXIST})
"""Errors that another try will not change."""


def is_tiered(table: TableInfo) -> bool:
    """Return whether the table has the option that makes the server tier it."""
    return is_set(table.descriptor.properties, LAKE_ENABLED)


def why_not_tiered(client: TieringClient, paths: Iterable[TablePath]) -> dict[TablePath, str]:
    """Return the tables that do not exist, or whose tiering is switched off, each with one sentence that says so.

    Raises:
        FlussTieringError: UNAVAILABLE if the server cannot be reached.
    """
    found = {}
    for path in paths:
        try:
            (table,) = client.get_tables([path])
        except FlussTieringError as error:
            if error.code not in WRONG_TABLES:
                raise
            found[path] = error.message
            continue
        if not is_tiered(table):
            found[path] = f"the tiering of {path} is switched off: alter it with {LAKE_ENABLED.key}=true"
    return found
