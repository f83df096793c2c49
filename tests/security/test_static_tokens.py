"""Static tokens: made by the command, kept as hashes, and refused once they are expired, changed or revoked."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from engine_support import ServerThread
from fluss_tiering.cli.main import app
from fluss_tiering.client import TieringClient
from fluss_tiering.client.security import ClientSecurity
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.edge.callers.authentication import CallCredentials
from fluss_tiering.server.edge.callers.static_tokens import StaticTokens
from fluss_tiering.server.edge.callers.tokens import TokenFile
from fluss_tiering.server.services import lake_tiering
from waiting import wait_until


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


def create(file: Path, *arguments: str) -> str:
    done = CliRunner().invoke(app, ["token", "create", "-f", str(file), *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout.strip()


def listed(file: Path) -> list[dict[str, object]]:
    done = CliRunner().invoke(app, ["token", "list", "-f", str(file), "--json"], catch_exceptions=False)
    entries: list[dict[str, object]] = json.loads(done.stdout)
    return entries


@pytest.fixture
def server(tmp_path: Path, file: Path) -> Iterator[ServerThread]:
    create(file, "first", "-r", "admin")
    with ServerThread(tmp_path / "data", tokens_file=file) as running:
        yield running


def refusal(server: ServerThread, token: str | None) -> FlussTieringError | None:
    """Return the error with which the server refuses a list of the statuses; None if it answers."""
    with TieringClient(server.target, security=ClientSecurity(token=token)) as client:
        try:
            client.list_tiering_statuses()
        except FlussTieringError as error:
            return error
    return None


def test_the_file_keeps_hashes_and_no_secrets(file: Path) -> None:
    token = create(file, "airflow", "-r", "tierer=shop.*", "-r", "reader")
    token_id, secret = token.removeprefix("flt_").split("_", 1)
    text = file.read_text()
    assert secret not in text
    assert hashlib.sha256(secret.encode()).hexdigest() in text
    for each in (file, file.with_name(f"{file.name}.lock")):
        assert each.stat().st_mode & 0o777 == 0o600, "nobody else reads it, or can lock it"
    (entry,) = listed(file)
    assert (entry["id"], entry["name"], entry["roles"]) == (token_id, "airflow", ["tierer=shop.*", "reader"])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["airflow", "-r", "boss"], "there is no role 'boss': expected one of reader, writer, tierer, operator, admin"),
        (["airflow", "-r", "reader=shop"], "'shop' is not a pattern of tables"),
        (["airflow", "-r", "reader="], "'' is not a pattern of tables"),
        (["airflow", "-r", "reader", "--expires-in", "soon"], "'soon' is not a duration"),
        ([" ", "-r", "reader"], "the name of the token is ' '"),
        (["airflow", "-r", "reader", "--expires-in", "0d"], "--expires-in is '0d', so that the token would never be"),
    ],
)
def test_wrong_tokens_are_refused_and_not_kept(file: Path, arguments: list[str], told: str) -> None:
    with pytest.raises(FlussTieringError, match=told.replace("(", r"\(")) as refused:
        CliRunner().invoke(app, ["token", "create", "-f", str(file), *arguments], catch_exceptions=False)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert not file.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")
def test_root_leaves_the_file_to_its_owner(file: Path) -> None:
    create(file, "first", "-r", "reader")
    os.chown(file, 4321, 1234)
    create(file, "second", "-r", "reader")
    lock = file.with_name(f"{file.name}.lock")
    assert [(each.stat().st_uid, each.stat().st_gid) for each in (file, lock)] == [(4321, 1234)] * 2
    assert file.stat().st_mode & 0o777 == 0o600


def test_who_made_the_temporary_file_before_does_not_get_the_token(file: Path, tmp_path: Path) -> None:
    prepared = tmp_path / "anna.token.tmp"
    prepared.touch(0o666)
    with prepared.open() as held:
        output = tmp_path / "anna.token"
        printed = CliRunner().invoke(
            app, ["token", "create", "anna", "-f", str(file), "-r", "reader", "-o", str(output)]
        )
        assert printed.exit_code == 0, printed.output
        assert held.read() == ""
    assert output.read_text().startswith("flt_")
    assert output.stat().st_mode & 0o777 == 0o600


def test_new_and_revoked_tokens_are_known_without_a_restart(server: ServerThread, file: Path) -> None:
    token = create(file, "second", "-r", "reader")
    wait_until(lambda: refusal(server, token) is None)
    token_id = next(each["id"] for each in listed(file) if each["name"] == "second")
    revoked = CliRunner().invoke(app, ["token", "revoke", "-f", str(file), str(token_id)])
    assert revoked.exit_code == 0, revoked.output
    error = wait_until(lambda: refusal(server, token))
    assert error.code is ErrorCode.AUTHENTICATION
    assert "unknown, expired or revoked" in error.message


def test_a_stream_ends_when_its_token_is_revoked(
    server: ServerThread, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake_tiering, "_SIGN_OF_LIFE_S", 0.1)
    token = create(file, "watcher", "-r", "reader")
    wait_until(lambda: refusal(server, token) is None)
    with TieringClient(server.target, security=ClientSecurity(token=token)) as client:
        changes = client.watch_tiering_statuses()
        next(changes)
        TokenFile(file).remove(next(each.id for each in TokenFile(file).read() if each.name == "watcher"))
        with pytest.raises(FlussTieringError) as ended:
            for _ in changes:
                pass
    assert ended.value.code is ErrorCode.AUTHENTICATION


def test_a_damaged_file_locks_nobody_out(server: ServerThread, file: Path) -> None:
    token = create(file, "second", "-r", "reader")
    wait_until(lambda: refusal(server, token) is None)
    file.write_text("{")
    create_again = ["token", "create", "-f", str(file), "third", "-r", "reader"]
    assert CliRunner().invoke(app, create_again).exit_code != 0, "a damaged file is not replaced"
    assert refusal(server, token) is None


def test_an_expired_token_is_refused(file: Path) -> None:
    token = create(file, "short", "-r", "reader", "--expires-in", "1h")
    now = [datetime.now(UTC)]
    tokens = StaticTokens(TokenFile(file), lambda: now[0])
    found = tokens.authenticate(CallCredentials(token, {}))
    assert found is not None
    assert found.identity.name == "token/short"
    assert found.is_valid()
    now[0] += timedelta(hours=1)
    assert not found.is_valid()
    with pytest.raises(FlussTieringError, match="unknown, expired or revoked"):
        tokens.authenticate(CallCredentials(token, {}))


def test_no_other_secret_and_no_other_id_pass(server: ServerThread, file: Path) -> None:
    token = create(file, "second", "-r", "reader")
    other = create(file, "third", "-r", "reader")
    wait_until(lambda: refusal(server, token) is None and refusal(server, other) is None)
    token_id, secret = token.removeprefix("flt_").split("_", 1)
    other_secret = other.removeprefix("flt_").split("_", 1)[1]
    for wrong in (f"flt_{token_id}_", f"{token}x", f"flt_{token_id}_{other_secret}", f"flt_000000000000_{secret}"):
        error = refusal(server, wrong)
        assert error is not None
        assert error.code is ErrorCode.AUTHENTICATION


def test_a_token_is_written_into_a_file_that_only_its_owner_reads(file: Path, tmp_path: Path) -> None:
    place = tmp_path / "airflow.token"
    place.write_text("an older one")
    place.chmod(0o644)
    told = create(file, "airflow", "-r", "reader", "--output", str(place))
    token_id = listed(file)[0]["id"]
    assert told == f"Wrote the token {token_id} to {place}."
    assert place.read_text().startswith(f"flt_{token_id}_")
    assert place.stat().st_mode & 0o777 == 0o600
    with pytest.raises(FlussTieringError, match="there is no folder"):
        create(file, "airflow", "-r", "reader", "--output", str(tmp_path / "none" / "token"))
    arguments = ["token", "create", "-f", str(file), "airflow", "-r", "reader", "--output", str(tmp_path)]
    refused = CliRunner().invoke(app, arguments)
    assert refused.exit_code == 2
    assert "is a directory" in refused.output
    assert len(listed(file)) == 1, "a token that nobody has is not kept"


@pytest.mark.system
def test_a_token_that_cannot_be_printed_is_not_kept(file: Path) -> None:
    create(file, "first", "-r", "reader")
    program = Path(sys.executable).with_name("fluss-tiering")
    arguments = [program, "token", "create", "airflow", "-r", "reader", "-f", file]
    with Path("/dev/full").open("w") as full:
        failed = subprocess.run(arguments, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert failed.returncode == 1
    assert "No space left on device" in failed.stderr
    assert [each["name"] for each in listed(file)] == ["first"]


def test_a_dash_is_the_standard_output(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert create(file, "airflow", "-r", "reader", "--output", "-").startswith("flt_")
    assert not (tmp_path / "-").exists()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"x" * 16_001, "it has 16,001 characters, and no call can carry more than 16,000"),
        (b"flt 1", "expected printable ASCII characters without spaces"),
        (b"\xff\xfef\x00", "cannot be read"),
    ],
)
def test_a_file_that_holds_no_token_is_told(tmp_path: Path, content: bytes, told: str) -> None:
    (tmp_path / "token").write_bytes(content)
    with pytest.raises(FlussTieringError, match=told):
        ClientSecurity(token_file=tmp_path / "token").read_token()


def test_the_mark_of_an_encoding_does_not_belong_to_a_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(b"\xef\xbb\xbfflt_1\r\n")
    assert ClientSecurity(token_file=tmp_path / "token").read_token() == "flt_1"


def test_a_file_without_a_version_is_told(file: Path) -> None:
    file.write_text("{}")
    with pytest.raises(FlussTieringError, match="holds no tokens \\(it lacks 'version'\\)"):
        TokenFile(file).read()


def test_a_link_to_the_file_is_followed(file: Path, tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    link = tmp_path / "etc" / "tokens.json"
    link.symlink_to(Path("..") / file.name)
    create(link, "first", "-r", "reader")
    create(link, "second", "-r", "reader")
    assert link.is_symlink()
    assert listed(file) == listed(link)
    first, second = (str(each["id"]) for each in listed(file))
    revoked = CliRunner().invoke(app, ["token", "revoke", "-f", str(link), first])
    assert revoked.exit_code == 0, revoked.output
    assert [each["id"] for each in listed(file)] == [second]
    assert link.is_symlink()
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(FlussTieringError) as refused:
        create(tmp_path / "nonexistent" / "tokens.json", "airflow", "-r", "reader")
    assert f"there is no folder {tmp_path}/nonexistent" in refused.value.message
    assert "free space" not in refused.value.message
