"""A lake of each test's own, in the shared Spark session."""

from __future__ import annotations

import itertools

import pytest

_NUMBERS = itertools.count(1)


@pytest.fixture
def lake_properties(tmp_path):
    """Catalog properties as the server gives them; the session keeps catalogs by name, so each test has its own."""
    return {
        "name": f"lake_{next(_NUMBERS)}",
        "type": "jdbc",
        "uri": f"jdbc:sqlite:{tmp_path}/catalog.db",
        "jdbc.schema-version": "V1",
        "warehouse": f"file://{tmp_path}/warehouse",
    }
