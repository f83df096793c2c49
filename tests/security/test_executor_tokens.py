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
from fluss_tiering.client.security import ClientSecurity
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket, TableInfo
from fluss_tiering.model.tiering import Claim, HeartbeatEntry
from fluss_tiering.server.edge.callers.tokens import TokenFile
from token_support import add_tokens
from waiting import wait_until

LEASE_MS = 600_000
OPEN = {"FetchLog", "FetchKvSnapshot", "ScanKv"}


class Guarded:
    """A server that asks callers who they are, and an administrator of it."""

    def __init__(self, folder: Path) -> None:
        self.token = add_tokens(folder / "tokens.json", {"admin": ["admin"]})["admin"]
        self.folder = folder

    def server(self) -> ServerThread:
        return ServerThread(self.folder / "data", tokens_file=self.folder / "tokens.json")

    def client(self, server: ServerThread, token: str | None = None) -> TieringClient:
        return TieringClient(server.target, security=ClientSecurity(token=token or self.token))


@pytest.fixture
def guarded(tmp_path: Path) -> Guarded:
    return Guarded(tmp_path)


@pytest.fixture
def server(guarded: Guarded) -> Iterator[ServerThread]:
    with guarded.server() as running:
        yield running


@pytest.fixture
def admin(guarded: Guarded, server: ServerThread) -> Iterator[TieringClient]:
    with guarded.client(server) as client:
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


def test_a_token_reads_the_table_of_its_round_and_no_other(
    guarded: Guarded, server: ServerThread, admin: TieringClient
) -> None:
    table, other = new_table(admin, [1, 2]), new_table(admin, [1, 2])
    claim = claimed(admin, table)
    claimed(admin, other, "another")
    with guarded.client(server, claim.executor_token) as executor:
        assert read(executor, table) > 0
        assert refused(executor, other) is ErrorCode.AUTHORIZATION


def test_a_token_may_call_nothing_else(guarded: Guarded, server: ServerThread, admin: TieringClient) -> None:
    claim = claimed(admin, new_table(admin, [1, 2]))
    with grpc.insecure_channel(server.target) as channel:
        for path, method in METHODS.items():
            status, details = call(channel, path, claim.executor_token)
            if method.name in OPEN:
                assert status is not grpc.StatusCode.UNAUTHENTICATED, details
            else:
                assert status is grpc.StatusCode.PERMISSION_DENIED, (path, details)


def test_a_token_is_of_no_use_after_its_round(guarded: Guarded, server: ServerThread, admin: TieringClient) -> None:
    table = new_table(admin, [1, 2])
    first = claimed(admin, table)
    with guarded.client(server, first.executor_token) as executor:
        assert refused(executor, table) is None
        finish(admin, first)
        assert refused(executor, table) is ErrorCode.AUTHENTICATION
        admin.resume_tables([table.path])
        second = claimed(admin, table, "the next round")
        assert second.tiering_epoch > first.tiering_epoch
        assert refused(executor, table) is ErrorCode.AUTHENTICATION, "the table is tiered again, in another round"


def test_a_claim_by_a_heartbeat_has_a_token_too(guarded: Guarded, server: ServerThread, admin: TieringClient) -> None:
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
    with guarded.client(server, answer.claim.executor_token) as executor:
        assert refused(executor, table) is None


def test_a_token_outlives_a_restart_of_the_server_as_its_round_does(guarded: Guarded) -> None:
    with guarded.server() as server, guarded.client(server) as admin:
        table = new_table(admin, [1, 2])
        tokens = claimed(admin, table).executor_token, admin.create_read_token(table.path)
    with guarded.server() as server:
        for token in tokens:
            with guarded.client(server, token) as executor:
                assert refused(executor, table) is None


def test_a_token_for_reads_reads_one_table_for_some_hours(
    guarded: Guarded, server: ServerThread, admin: TieringClient
) -> None:
    table, other = new_table(admin, [1, 2]), new_table(admin, [1, 2])
    token = admin.create_read_token(table.path)
    content = jwt.decode(token.removeprefix("flx_"), options={"verify_signature": False})
    assert content["exp"] - datetime.now(UTC).timestamp() == pytest.approx(12 * 3600, abs=60)
    with guarded.client(server, token) as executor:
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


def test_a_token_for_reads_is_of_use_as_long_as_its_owner_may_read(
    guarded: Guarded, server: ServerThread, admin: TieringClient
) -> None:
    table = new_table(admin, [1, 2])
    file = guarded.folder / "tokens.json"
    texts = [add_tokens(file, {"reader": [f"reader={table.path.database}.*"]})["reader"] for _ in range(2)]
    tokens = []
    for text in texts:
        with guarded.client(server, text) as client:
            wait_until(lambda: refused(client, table) is None)
            tokens.append(client.create_read_token(table.path))
    with guarded.client(server, tokens[0]) as of_revoked, guarded.client(server, tokens[1]) as of_other:
        assert refused(of_revoked, table) is None
        TokenFile(file).remove(texts[0].split("_")[1])
        wait_until(lambda: refused(of_revoked, table) is ErrorCode.AUTHENTICATION)
        assert refused(of_other, table) is None, "another token of the same name is still valid"


def changed(token: str, **claims: object) -> str:
    """Return a token with other claims and the old signature."""
    header, payload, signature = token.removeprefix("flx_").split(".")
    content = json.loads(base64.urlsafe_b64decode(payload + "=="))
    content.update(claims)
    text = base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")
    return f"flx_{header}.{text}.{signature}"


def test_forged_tokens_are_refused(
    guarded: Guarded, server: ServerThread, admin: TieringClient, tmp_path: Path
) -> None:
    table, other = new_table(admin, [1, 2]), new_table(admin, [1, 2])
    claim, claim_of_other = claimed(admin, table), claimed(admin, other, "another")
    token = claim.executor_token
    content = jwt.decode(token.removeprefix("flx_"), options={"verify_signature": False})
    (tmp_path / "elsewhere").mkdir()
    elsewhere = Guarded(tmp_path / "elsewhere")
    with elsewhere.server() as foreign, elsewhere.client(foreign) as foreign_admin:
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
        with guarded.client(server, text) as executor:
            assert refused(executor, other) is ErrorCode.AUTHENTICATION, what
            assert refused(executor, table) is ErrorCode.AUTHENTICATION, what


def test_a_server_that_asks_nobody_makes_no_tokens(tmp_path: Path) -> None:
    with ServerThread(tmp_path / "data") as server, TieringClient(server.target) as client:
        assert claimed(client, new_table(client, [1, 2])).executor_token == ""


def test_a_token_is_not_printed(admin: TieringClient) -> None:
    claim = claimed(admin, new_table(admin, [1, 2]))
    assert claim.executor_token
    assert claim.executor_token not in repr(claim)
