"""Clients and servers of different versions."""

from __future__ import annotations

import pytest

from fluss_tiering import __version__
from fluss_tiering.client import TieringClient
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.version import other_version
from fluss_tiering.wire.tables import path_to_pb


def test_another_minor_version_is_told(client: TieringClient) -> None:  # D30
    assert client.describe_storage().server_version == __version__
    assert other_version(__version__) is None
    major, minor, _ = __version__.split(".")
    assert other_version(f"{major}.{minor}.99") is None
    assert other_version("") is None
    for other in (f"{major}.{int(minor) + 1}.0", f"{int(major) + 1}.{minor}.0"):
        assert other in (other_version(other) or "")


def test_a_table_can_be_named_by_text(client: TieringClient) -> None:  # D30
    assert path_to_pb("db.orders") == path_to_pb(TablePath("db", "orders"))  # type: ignore[arg-type]
    with pytest.raises(FlussTieringError) as refused:
        client.scan("db.nowhere")
    assert refused.value.code is ErrorCode.TABLE_NOT_EXIST
    with pytest.raises(FlussTieringError, match="'orders' is not a table path") as refused:
        client.list_buckets(["orders"])  # type: ignore[list-item]
    assert refused.value.code is ErrorCode.INVALID_TABLE
