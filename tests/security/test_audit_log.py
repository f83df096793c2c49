"""The audit log: who made which call about which table, from where, and how it ended."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest
from callers import METHODS, call, empty_request

from engine_support import SCHEMA, ServerThread, descriptor, new_path, new_table
from fluss_tiering.api.v1 import kv_snapshot_leases_pb2, lake_tiering_pb2, tables_pb2
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.edge.audit_log import AuditLog
from fluss_tiering.server.edge.callers.roles import Grant
from fluss_tiering.server.edge.callers.tokens import StaticToken, TokenFile
from fluss_tiering.server.edge.methods import MAX_NAME_CHARS, MAX_NAMES, Named
from token_support import TokenServer, add_tokens
from waiting import WAIT_S, wait_until

REQUEST_ID = "fluss-tiering-request-id"


@pytest.fixture
def log_file(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


ROLES = {role: [role] for role in ("reader", "writer", "tierer", "admin")}


@pytest.fixture
def server(tmp_path: Path, log_file: Path) -> Iterator[TokenServer]:
    with TokenServer(tmp_path, ROLES, audit_log=str(log_file)) as running:
        yield running


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def wait_for(file: Path, count: int) -> list[dict[str, Any]]:
    wait_until(lambda: len(lines(file)) >= count)
    return lines(file)


def test_a_change_is_written_with_its_caller_its_table_and_where_it_came_from(
    server: TokenServer, log_file: Path
) -> None:
    path = new_path()
    began = datetime.now(UTC)
    with server.client("admin") as client:
        client.create_table(path, descriptor())
    (line,) = wait_for(log_file, 1)
    assert (line["identity"], line["call"], line["outcome"], line["event"]) == (
        "token/admin",
        "CreateTable",
        "OK",
        "call",
    )
    assert line["tables"] == [str(path)]
    assert line["peer"].startswith("127.0.0.1:")
    assert line["time"].endswith("Z")
    assert began.replace(microsecond=0) <= datetime.fromisoformat(line["time"]) <= datetime.now(UTC)
    assert line["duration_ms"] > 0
    assert "code" not in line
    assert (log_file.stat().st_mode & 0o777) == 0o600


def test_every_refused_call_is_written(server: TokenServer, log_file: Path) -> None:
    for path in METHODS:
        status, _ = call(server.channel, path, request=empty_request(path))
        assert status is grpc.StatusCode.UNAUTHENTICATED
    found = wait_for(log_file, len(METHODS))
    for line, method in zip(found, METHODS.values(), strict=True):
        assert (line["identity"], line["outcome"], line["code"]) == (None, "UNAUTHENTICATED", "AUTHENTICATION")
        assert line["call"] == method.name
        assert line["event"] == ("begin" if method.client_streaming or method.server_streaming else "call")


def test_a_caller_without_the_role_is_written_with_the_table_that_it_was_about(
    server: TokenServer, log_file: Path
) -> None:
    request = tables_pb2.DropTableRequest()
    request.table_path.database_name, request.table_path.table_name = "shop", "orders"
    path = "/fluss_tiering.v1.Tables/DropTable"
    status, _ = call(server.channel, path, server.tokens["reader"], request.SerializeToString())
    assert status is grpc.StatusCode.PERMISSION_DENIED
    (line,) = wait_for(log_file, 1)
    assert (line["identity"], line["code"], line["tables"]) == ("token/reader", "AUTHORIZATION", ["shop.orders"])


def test_reads_that_are_answered_are_left_out_unless_all_calls_are_asked_for(tmp_path: Path) -> None:
    for calls, expected in (("changes", ["CreateTable"]), ("all", ["CreateTable", "ListTieringStatuses"])):
        file = tmp_path / f"{calls}.jsonl"
        with (
            TokenServer(tmp_path / calls, ROLES, audit_log=str(file), audit_log_calls=calls) as running,
            running.client("admin") as client,
        ):
            path = new_path()
            client.create_table(path, descriptor())
            client.list_tiering_statuses(path)
            with pytest.raises(FlussTieringError):
                client.list_tiering_statuses(new_path())  # NOT_FOUND, which is a normal answer
        # All lines are written when the server has stopped.
        assert [line["call"] for line in lines(file)] == expected + ["ListTieringStatuses"] * (calls == "all")


def test_a_stream_has_a_line_for_its_begin_and_one_for_its_end(server: TokenServer, log_file: Path) -> None:
    rows = pa.BufferOutputStream()
    with pa.ipc.new_stream(rows, SCHEMA) as writer:
        writer.write_table(pa.table({"id": [1], "name": ["a secret name"]}, schema=SCHEMA))
    with server.client("admin") as client:
        table = new_table(client)
    request = tables_pb2.WriteRowsRequest(kind=tables_pb2.PB_WRITE_KIND_UPSERT, arrow_ipc=rows.getvalue().to_pybytes())
    request.table_path.database_name, request.table_path.table_name = table.path.database, table.path.table
    metadata = [("authorization", f"Bearer {server.tokens['writer']}")]
    stream = server.channel.stream_stream("/fluss_tiering.v1.Tables/WriteRows")
    assert len(list(stream(iter([request.SerializeToString()]), metadata=metadata, timeout=30))) == 1
    found = [line for line in wait_for(log_file, 3) if line["call"] == "WriteRows"]
    assert [(line["event"], line["outcome"]) for line in found] == [("begin", "ADMITTED"), ("end", "OK")]
    begin, end = found
    assert begin["tables"] == end["tables"] == [str(table.path)]
    assert begin["request_id"] == end["request_id"]
    assert "duration_ms" not in begin
    assert (end["requests"], end["responses"], end["rows"]) == (1, 1, 1)
    assert end["duration_ms"] > 0
    assert "secret" not in log_file.read_text()


def test_nothing_of_a_request_but_names_is_written(server: TokenServer, log_file: Path) -> None:
    request = tables_pb2.AlterTableRequest(set_properties={"iceberg.password": "hunter2"})
    request.table_path.database_name, request.table_path.table_name = "shop", "orders"
    call(server.channel, "/fluss_tiering.v1.Tables/AlterTable", server.tokens["admin"], request.SerializeToString())
    wait_for(log_file, 1)
    text = log_file.read_text()
    assert "hunter2" not in text
    assert "password" not in text
    assert server.tokens["admin"] not in text


def test_names_cannot_forge_lines(server: TokenServer, log_file: Path) -> None:
    evil = 'x"}\n{"identity": "token/nobody"}\r\u2028\x1b[2J'
    request = kv_snapshot_leases_pb2.DropKvSnapshotLeaseRequest(lease_id=evil)
    call(
        server.channel, "/fluss_tiering.v1.KvSnapshotLeases/DropKvSnapshotLease", server.tokens["tierer"],
        request.SerializeToString(),
    )  # fmt: skip
    (line,) = wait_for(log_file, 1)
    assert line["leases"] == [evil]
    raw = log_file.read_bytes()
    assert raw.count(b"\n") == 1
    assert all(0x20 <= byte < 0x7F for byte in raw.strip(b"\n"))


def test_the_id_of_a_call_is_told_to_the_caller(server: TokenServer, log_file: Path) -> None:
    path = "/fluss_tiering.v1.KvSnapshotLeases/DropKvSnapshotLease"
    request = kv_snapshot_leases_pb2.DropKvSnapshotLeaseRequest(lease_id="a").SerializeToString()
    ids = []
    for role in ("tierer", "reader"):
        metadata = [("authorization", f"Bearer {server.tokens[role]}"), (REQUEST_ID, "0" * 32)]
        answered = server.channel.unary_unary(path).future(request, metadata=metadata, timeout=30)
        ids.append(dict(answered.trailing_metadata())[REQUEST_ID])
    found = wait_for(log_file, 2)
    assert [line["request_id"] for line in found] == ids
    assert [line["outcome"] for line in found] == ["OK", "PERMISSION_DENIED"]
    # A client gives no id of its own.
    assert "0" * 32 not in ids
    assert ids[0] != ids[1]


def test_many_names_are_counted() -> None:
    request = lake_tiering_pb2.ResumeTablesRequest()
    for number in range(MAX_NAMES + 5):
        request.table_paths.add(database_name="shop", table_name=f"t{number}")
    request.table_paths.add(database_name="shop", table_name="t0")
    named = Named()
    named.add(request)
    assert named.fields() == {"tables": [f"shop.t{number}" for number in range(MAX_NAMES)], "more_tables": 5}


def test_tables_are_named_by_their_ids_in_calls_that_do_so() -> None:
    request = kv_snapshot_leases_pb2.ReleaseKvSnapshotLeaseRequest(lease_id="lease")
    for bucket in range(3):
        request.buckets_to_release.add(table_id=7, bucket_id=bucket)
    named = Named()
    named.add(request)
    assert named.fields() == {"leases": ["lease"], "table_ids": [7]}


def test_the_file_is_opened_anew_after_a_rotation(log_file: Path) -> None:
    log = AuditLog(str(log_file), lambda _: None)
    log.start()
    log.write({"number": 1})
    wait_for(log_file, 1)
    rotated = log_file.rename(log_file.with_suffix(".1"))
    log.write({"number": 2})
    wait_for(log_file, 1)
    log_file.unlink()
    log.write({"number": 3})
    wait_for(log_file, 1)
    log.close()
    assert lines(rotated) == [{"number": 1}]
    assert lines(log_file) == [{"number": 3}]


def test_lines_that_find_no_room_are_counted_and_the_log_goes_on(tmp_path: Path) -> None:
    """A pipe that nobody reads takes no lines after a while, as a disk that hangs."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    lost: list[int] = []
    log = AuditLog(str(pipe), lost.append, max_waiting=3)
    log.start()
    text = "x" * 100_000
    for _ in range(20):
        log.write({"text": text})
    assert 0 < sum(lost) < 20

    found = bytearray()
    expected = 20 - sum(lost)

    def read() -> None:
        os.set_blocking(reader, True)
        while found.count(b"\n") < expected:
            found.extend(os.read(reader, 1 << 16))

    reading = threading.Thread(target=read)
    reading.start()
    log.close()
    reading.join()
    os.close(reader)
    assert [len(json.loads(line)["text"]) for line in found.splitlines()] == [100_000] * expected


def test_a_full_disk_loses_lines_until_its_file_is_deleted(log_file: Path) -> None:
    """Linux's /dev/full answers each write as a full disk does."""
    log_file.symlink_to("/dev/full")
    lost = threading.Semaphore(0)
    log = AuditLog(str(log_file), lambda _: lost.release())
    log.start()
    for number in range(2):
        log.write({"number": number})
        assert lost.acquire(timeout=WAIT_S)
    log_file.unlink()
    log.write({"number": 2})
    log.close()
    assert lines(log_file) == [{"number": 2}]


def test_a_line_that_a_full_disk_has_cut_is_ended(log_file: Path) -> None:
    log_file.write_text('{"time": "2026')
    log = AuditLog(str(log_file), lambda _: None)
    log.start()
    log.write({"number": 1})
    log.close()
    assert [json.loads(line) for line in log_file.read_text().splitlines()[1:]] == [{"number": 1}]


def test_a_server_whose_audit_log_cannot_be_opened_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(FlussTieringError) as refused, ServerThread(tmp_path, audit_log=str(tmp_path / "no" / "file")):
        pass
    assert refused.value.code is ErrorCode.STORAGE
    assert "audit log" in refused.value.message


TAKE = "/fluss_tiering.v1.Tables/TakeKvSnapshots"


def test_the_names_of_a_line_are_short() -> None:
    request = lake_tiering_pb2.ClaimTablesRequest(lease_id="l" * MAX_NAME_CHARS)
    request.table_paths.add(database_name="d" * 200, table_name="t" * 200)
    named = Named()
    named.add(request)
    assert named.fields() == {
        "tables": ["d" * 200 + "." + "t" * (MAX_NAME_CHARS - 202) + "…"],
        "leases": ["l" * MAX_NAME_CHARS],
    }


@pytest.mark.parametrize("reason", ["unknown or revoked", "wrong secret", "expired"])
def test_a_token_that_is_not_valid_is_traced_by_its_id(
    server: TokenServer, log_file: Path, reason: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    file = TokenFile(server.tokens_file)
    expires = datetime.now(UTC) - timedelta(seconds=1) if reason == "expired" else None
    token, text = StaticToken.create("anna", [Grant.parse("admin")], datetime.now(UTC), expires)
    if reason != "unknown or revoked":
        file.add(token)
    given_text = f"flt_{token.id}_{'x' * 43}" if reason == "wrong secret" else text

    def refused() -> bool:
        status, told = call(server.channel, TAKE, given_text)
        assert status is grpc.StatusCode.UNAUTHENTICATED
        assert "unknown, expired or revoked" in told, "the caller is not told which"
        return bool(lines(log_file)) and lines(log_file)[-1].get("reason") == reason

    wait_until(refused)
    line = lines(log_file)[-1]
    assert (line["identity"], line["token_id"]) == (None, token.id)
    logged = capsys.readouterr().out
    assert f"token_id={token.id}" in logged
    assert f"peer={line['peer']}" in logged
    # A secret may itself have an underscore.
    for secret in (text.split("_", 2)[2], "x" * 43):
        assert secret not in logged + log_file.read_text()


def test_two_tokens_of_one_name_are_told_apart(server: TokenServer, log_file: Path) -> None:
    text = add_tokens(server.tokens_file, {"reader": ["reader"]})["reader"]
    token_id = text.split("_")[1]
    wait_until(lambda: call(server.channel, TAKE, text)[0] is grpc.StatusCode.PERMISSION_DENIED)
    call(server.channel, TAKE, server.tokens["reader"])
    wait_until(
        lambda: {line["token_id"] for line in lines(log_file)} >= {token_id, server.tokens["reader"].split("_")[1]}
    )
    assert {line["identity"] for line in lines(log_file) if line["token_id"] == token_id} <= {"token/reader", None}
