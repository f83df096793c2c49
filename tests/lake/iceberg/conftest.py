"""Each test has its own lake in the shared Spark session."""

from __future__ import annotations

import itertools

import pytest
from table_support import KEYED, LOG, PATH

from fluss_tiering.lake.iceberg.catalog import IcebergCatalogs
from fluss_tiering.model.table import TableInfo

_NUMBERS = itertools.count(1)


@pytest.fixture
def lake_properties(tmp_path):
    """Return catalog properties as the server gives them, with a name that no other test uses in the session."""
    return {
        "name": f"lake_{next(_NUMBERS)}",
        "type": "jdbc",
        "uri": f"jdbc:sqlite:{tmp_path}/catalog.db",
        "jdbc.schema-version": "V1",
        "warehouse": f"file://{tmp_path}/warehouse",
    }


@pytest.fixture
def keyed(lake_properties) -> TableInfo:
    return TableInfo(1, PATH, 1, KEYED, 0, lake_properties)


@pytest.fixture
def log(lake_properties) -> TableInfo:
    return TableInfo(1, PATH, 1, LOG, 0, lake_properties)


@pytest.fixture
def catalogs(spark) -> IcebergCatalogs:
    return IcebergCatalogs(spark)
