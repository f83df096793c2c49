"""Rounds of a server with TLS that asks callers who they are: executors read with the token of their round."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from spark_support import Tiering, lake_server, named

from certificates import Authority
from fluss_tiering.client import TieringClient
from fluss_tiering.client.security import ClientSecurity
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.server.edge.callers.roles import Grant
from fluss_tiering.server.edge.callers.tokens import StaticToken, TokenFile
from fluss_tiering.spark.source.options import SourceOptions
from fluss_tiering.spark.source.schema import spark_schema
from fluss_tiering.spark.source.table_reader import TableReader

ROWS = named(range(20), "first")


@pytest.fixture
def tiering(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tiering]:
    authority = Authority(tmp_path / "ca")
    pair = authority.pair("server", "server")
    token, text = StaticToken.create("driver", [Grant.parse("admin")], datetime.now(UTC), None)
    TokenFile(tmp_path / "tokens.json").add(token)
    (tmp_path / "token").write_text(text)
    monkeypatch.setenv("FLUSS_TIERING_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("FLUSS_TIERING_TLS_CA", str(authority.cert))
    server = lake_server(
        tmp_path / "server",
        FLUSS_TIERING_TOKENS_FILE=str(tmp_path / "tokens.json"),
        FLUSS_TIERING_TLS_CERT_FILE=str(pair.cert),
        FLUSS_TIERING_TLS_KEY_FILE=str(pair.key),
    ).start()
    describe = TieringClient.describe_storage
    # As on another machine: the server's files are not at hand, so that executors ask the server for rows.
    monkeypatch.setattr(TieringClient, "describe_storage", lambda client: replace(describe(client), data_dir=""))
    with TieringClient(server.target) as client:
        yield Tiering(client, spark, server.target)
    assert server.stop() == 0


@pytest.mark.system
def test_executors_read_with_the_token_of_their_round(tiering: Tiering, monkeypatch: pytest.MonkeyPatch) -> None:
    log, keyed = tiering.table(primary_key=False), tiering.table()
    for table in (log, keyed):
        tiering.write(table, ROWS)
    tiering.client.take_kv_snapshots([keyed.path])
    results = tiering.tier_all(log, keyed)
    assert [result.error for result in results] == [None, None]
    assert tiering.lake_rows(log) == tiering.lake_rows(keyed) == sorted(ROWS.items())

    # Without that token they are refused, though the driver's own is valid.
    tiering.write(log, named(range(20, 30), "more"))
    for_executors = ClientSecurity.for_executors
    monkeypatch.setattr(ClientSecurity, "for_executors", lambda own, token: for_executors(own, f"{token}x"))
    (refused,) = tiering.tier_all(log)
    assert refused.error is not None
    assert "the token is not valid here" in refused.error
    monkeypatch.setattr(ClientSecurity, "for_executors", for_executors)
    tiering.tier(log)
    assert len(tiering.lake_rows(log)) == 30


@pytest.mark.system
def test_executors_of_queries_read_with_a_token_for_their_table(
    tiering: Tiering, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = [tiering.table(primary_key=False), tiering.table()]
    # The session was started without these variables, so that the options give the credentials.
    options = {
        "server": tiering.target,
        "tokenFile": os.environ["FLUSS_TIERING_TOKEN_FILE"],
        "tlsCa": os.environ["FLUSS_TIERING_TLS_CA"],
    }
    for table in tables:
        tiering.write(table, ROWS)
        read = tiering.spark.read.format("fluss").options(table=str(table.path), **options).load()
        assert sorted((row.id, row.name) for row in read.collect()) == sorted(ROWS.items())
    statuses = tiering.spark.read.format("fluss").options(table="sys.lake_tiering_status", **options).load()
    assert statuses.count() == len(tables)
    with pytest.raises(Exception, match="would show the token"):
        tiering.spark.read.format("fluss").options(table=str(tables[0].path), token="secret", **options).load()

    tiering.tier(tables[0])
    results = tiering.audit(tables[0])
    assert results.equal
    for_executors = ClientSecurity.for_executors
    monkeypatch.setattr(ClientSecurity, "for_executors", lambda own, token: for_executors(own, f"{token}x"))
    with pytest.raises(FlussTieringError, match="the token is not valid here"):
        tiering.audit(tables[0])


@pytest.mark.system
def test_what_executors_of_queries_get_has_no_token_of_the_driver(tiering: Tiering) -> None:
    table = tiering.table()
    token = Path(os.environ["FLUSS_TIERING_TOKEN_FILE"]).read_text()
    options = SourceOptions(
        tiering.target,
        str(table.path),
        security=replace(ClientSecurity.from_environment(), token_file=None, token=token),
    )
    sent = cloudpickle.dumps(TableReader(options, spark_schema(table.descriptor.columns)))
    assert token.encode() not in sent
    assert b"flx_" in sent
