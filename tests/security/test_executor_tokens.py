"""The tokens of rounds: of use for one table, for reading, and as long as the round runs."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import grpc
import jwt
import pytest
from callers import METHODS, call

from engine_support import ServerThread, claimed, new_path, new_table
from fluss_tiering.client import TieringClient
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket, TableInfo
from fluss_tiering.model.tiering import Claim, HeartbeatEntry
from fluss_tiering.server.edge.callers.tokens import TokenFile
from token_support import TokenServer, add_tokens
from waiting import wait_until

LEASE_MS = 600_000
OPEN = {"FetchLog", "FetchKvSnapshot", "ScanKv"}


def guarded(folder: Path) -> TokenServer:
    return TokenServer(folder, {"admin": ["admin"]})


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenServer]:
    with guarded(tmp_path_factory.mktemp("tokens")) as running:
        yield running


@pytest.fixture(scope="module")
def admin(server: TokenServer) -> Iterator[TieringClient]:
    with server.client("admin") as client:
        yield client


def finish(admin: TieringClient, claim: Claim) -> None:
    entry = HeartbeatEntry(claim.table_id, claim.tiering_epoch, "over", coordinator_epoch=claim.coordinator_epoch)
    assert not admin.heartbeat(failed=[entry]).failed_errors


def read(client: TieringClient, table: TableInfo) -> int:
    """Return the number of bytes of the table's log."""
    return sum(map(len, client.fetch_log(TableBucket(table.table_id, 0), 0, 2)))


def refused(client: TieringClient, table: TableInfo) -> ErrorCode | None:
    try:
        read(client, table)
    except FlussTieringError as error:
        return error.code
    return None


def test_a_token_reads_the_table_of_its_round_and_no_other(server: TokenServer, admin: TieringClient) -> None:
    table, other = new_table(admin, [1, 2]), new_table(admin, [1, 2])
    claim = claimed(admin, table)
    claimed(admin, other, "another")
    with server.client_with(claim.executor_token) as executor:
        assert read(executor, table) > 0
        assert refused(executor, other) is ErrorCode.AUTHORIZATION


def test_a_token_may_call_nothing_else(server: TokenServer, admin: TieringClient) -> None:
    claim = claimed(admin, new_table(admin, [1, 2]))
    for path, method in METHODS.items():
        status, details = call(server.channel, path, claim.executor_token)
        if method.name in OPEN:
            assert status is not grpc.StatusCode.UNAUTHENTICATED, details
        else:
            assert status is grpc.StatusCode.PERMISSION_DENIED, (path, details)


def test_a_token_is_of_no_use_after_its_round(server: TokenServer, admin: TieringClient) -> None:
    table = new_table(admin, [1, 2])
    first = claimed(admin, table)
    with server.client_with(first.executor_token) as executor:
        assert refused(executor, table) is None
        finish(admin, first)
        assert refused(executor, table) is ErrorCode.AUTHENTICATION
        admin.resume_tables([table.path])
        second = claimed(admin, table, "the next round")
        assert second.tiering_epoch > first.tiering_epoch
        assert refused(executor, table) is ErrorCode.AUTHENTICATION, "the table is tiered again, in another round"


def test_a_claim_by_a_heartbeat_has_a_token_too(server: TokenServer, admin: TieringClient) -> None:
    table = new_table(admin, [1, 2], freshness="1ms")
    answer = wait_until(
        lambda: next(
            (
                found
                for found in [admin.heartbeat(request_table=True, lease_id="any", driver="driver")]
                if found.claim is not None
            ),
            None,
        )
    )
    assert answer.claim is not None
    with server.client_with(answer.claim.executor_token) as executor:
        assert refused(executor, table) is None


def test_a_token_outlives_a_restart_of_the_server_as_its_round_does(tmp_path: Path) -> None:
    with guarded(tmp_path) as server, server.client("admin") as admin:
        table = new_table(admin, [1, 2])
        tokens = claimed(admin, table).executor_token, admin.create_read_token(table.path)
    with guarded(tmp_path) as server:
        for token in tokens:
            with server.client_with(token) as executor:
                assert refused(executor, table) is None


def test_a_token_for_reads_reads_one_table_for_some_hours(server: TokenServer, admin: TieringClient) -> None:
    table, other = new_table(admin, [1, 2]), new_table(admin, [1, 2])
    token = admin.create_read_token(table.path)
    content = jwt.decode(token.removeprefix("flx_"), options={"verify_signature": False})
    assert content["exp"] - datetime.now(UTC).timestamp() == pytest.approx(12 * 3600, abs=60)
    with server.client_with(token) as executor:
        assert read(executor, table) > 0
        assert refused(executor, other) is ErrorCode.AUTHORIZATION
        with executor.scan(table) as scan:
            assert sum(rows.num_rows for rows in scan) == 2
        with pytest.raises(FlussTieringError) as error, executor.scan(other) as scan:
            list(scan)
        assert error.value.code is ErrorCode.AUTHORIZATION
        with pytest.raises(FlussTieringError) as error:
            executor.create_read_token(table.path)
        assert error.value.code is ErrorCode.AUTHORIZATION, "it makes no further tokens"
    with pytest.raises(FlussTieringError) as error:
        admin.create_read_token(new_path())
    assert error.value.code is ErrorCode.TABLE_NOT_EXIST


def test_a_token_for_reads_is_of_use_as_long_as_its_owner_may_read(server: TokenServer, admin: TieringClient) -> None:
    table = new_table(admin, [1, 2])
    texts = [
        add_tokens(server.tokens_file, {"reader": [f"reader={table.path.database}.*"]})["reader"] for _ in range(2)
    ]
    tokens = []
    for text in texts:
        with server.client_with(text) as client:
            wait_until(lambda: refused(client, table) is None)
            tokens.append(client.create_read_token(table.path))
    with server.client_with(tokens[0]) as of_revoked, server.client_with(tokens[1]) as of_other:
        assert refused(of_revoked, table) is None
        TokenFile(server.tokens_file).remove(texts[0].split("_")[1])
        wait_until(lambda: refused(of_revoked, table) is ErrorCode.AUTHENTICATION)
        assert refused(of_other, table) is None, "another token of the same name is still valid"


def changed(token: str, **claims: object) -> str:
    """Return a token with other claims and the old signature."""
    header, payload, signature = token.removeprefix("flx_").split(".")
    content = json.loads(base64.urlsafe_b64decode(payload + "=="))
    content.update(claims)
    text = base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")
    return f"flx_{header}.{text}.{signature}"


def test_forged_tokens_are_refused(server: TokenServer, admin: TieringClient, tmp_path: Path) -> None:
    table, other = new_table(admin, [1, 2]), new_table(admin, [1, 2])
    claim, claim_of_other = claimed(admin, table), claimed(admin, other, "another")
    token = claim.executor_token
    content = jwt.decode(token.removeprefix("flx_"), options={"verify_signature": False})
    with guarded(tmp_path / "elsewhere") as foreign, foreign.client("admin") as foreign_admin:
        of_elsewhere = claimed(foreign_admin, new_table(foreign_admin, [1, 2])).executor_token
    forged = {
        "another table": changed(token, table=other.table_id, epoch=claim_of_other.tiering_epoch),
        "for reads": changed(token, epoch=None),
        "for ever": changed(token, exp=2**40),
        "unsigned": "flx_" + jwt.encode(content, "", "none"),
        "of another key": "flx_" + jwt.encode(content, "k" * 32, "HS256"),
        "of another server": of_elsewhere,
        "cut": token[:-3],
        "of another kind": token.removeprefix("flx_"),
        "nothing": "flx_",
    }
    for what, text in forged.items():
        with server.client_with(text) as executor:
            assert refused(executor, other) is ErrorCode.AUTHENTICATION, what
            assert refused(executor, table) is ErrorCode.AUTHENTICATION, what


def test_a_server_that_asks_nobody_makes_no_tokens(tmp_path: Path) -> None:
    with ServerThread(tmp_path / "data") as server, TieringClient(server.target) as client:
        assert claimed(client, new_table(client, [1, 2])).executor_token == ""


def test_a_token_is_not_printed(admin: TieringClient) -> None:
    claim = claimed(admin, new_table(admin, [1, 2]))
    assert claim.executor_token
    assert claim.executor_token not in repr(claim)
