"""Files that say who may call, and that are damaged, deleted or open to others while the server runs or starts."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client.core import Metric
from structlog.testing import capture_logs

from certificates import Authority
from engine_support import ServerThread
from fluss_tiering.model.clock import SystemClock
from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.server.edge.callers.access_file import AccessFile
from fluss_tiering.server.edge.callers.authentication import CallCredentials
from fluss_tiering.server.edge.callers.roles import Grant
from fluss_tiering.server.edge.callers.static_tokens import StaticTokens
from fluss_tiering.server.edge.callers.tokens import StaticToken, TokenFile
from fluss_tiering.server.edge.tls import ServerTls
from fluss_tiering.server.metrics.server import ServerCollector
from fluss_tiering.server.settings.values import TlsFiles

DAMAGES: dict[str, Callable[[Path], object]] = {
    "half written": lambda file: file.write_text(file.read_text()[:40]),
    "empty": lambda file: file.write_text(""),
    "deleted": Path.unlink,
    "a folder": lambda file: (file.unlink(), file.mkdir()),
    "a pipe that nobody writes": lambda file: (file.unlink(), os.mkfifo(file, 0o600)),
    "a link to itself": lambda file: (file.unlink(), file.symlink_to(file.name)),
    "no ASCII in a hash": lambda file: file.write_text(changed(file, sha256="é" * 64)),
    "no hash": lambda file: file.write_text(changed(file, sha256=7)),
    "no pattern": lambda file: file.write_text(changed(file, grants=[{"role": "reader", "tables": 5}])),
    "deeply nested": lambda file: file.write_text('{"version":1,"tokens":' + "[" * 100_000),
    "writable by others": lambda file: file.chmod(0o666),
}


def changed(file: Path, **fields: object) -> str:
    content = json.loads(file.read_text())
    content["tokens"][0] |= fields
    return json.dumps(content)


class Tokens:
    """Static tokens, of a file that is looked at whenever a test says so."""

    def __init__(self, file: Path) -> None:
        self.file = TokenFile(file)
        self.now = datetime.now(UTC)
        self._seconds = 0.0
        self.texts: dict[str, str] = {}
        self.add("anna")
        self.tokens = StaticTokens(self.file, lambda: self.now, lambda: self._seconds)

    def add(self, name: str, expires: datetime | None = None) -> None:
        token, self.texts[name] = StaticToken.create(name, [Grant.parse("reader")], self.now, expires)
        self.file.add(token)

    def accepts(self, name: str) -> bool:
        self._seconds += 100
        try:
            return self.tokens.authenticate(CallCredentials(self.texts[name], {})) is not None
        except FlussTieringError:
            return False


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    return Tokens(tmp_path / "tokens.json")


def put_back(file: Path, content: str) -> None:
    if file.is_dir():
        file.rmdir()
    file.unlink(missing_ok=True)
    file.write_text(content)
    file.chmod(0o600)


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_of_tokens_changes_nothing_until_it_is_mended(
    tokens: Tokens, damage: Callable[[Path], object]
) -> None:
    file = tokens.file.path
    good = file.read_text()
    damage(file)
    with capture_logs() as logged:
        assert [tokens.accepts("anna") for _ in range(3)] == [True] * 3
        assert not tokens.tokens.watched.is_in_force
    assert [each["event"] for each in logged] == ["files cannot be read again: what was read before stays valid"]
    put_back(file, good)
    tokens.add("bert")
    with capture_logs() as logged:
        assert tokens.accepts("bert")
    assert [(each["event"], each["mended"]) for each in logged] == [("files read again", True)]
    assert tokens.tokens.watched.is_in_force


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_server_does_not_start_with_a_damaged_file_of_tokens(
    tokens: Tokens, damage: Callable[[Path], object], tmp_path: Path
) -> None:
    damage(tokens.file.path)
    with (
        pytest.raises(FlussTieringError, match=r"tokens\.json"),
        ServerThread(tmp_path / "data", tokens_file=tokens.file.path),
    ):
        pass


def test_each_new_error_is_logged_once(tokens: Tokens) -> None:
    with capture_logs() as logged:
        for damage in ("half written", "empty", "deleted"):
            DAMAGES[damage](tokens.file.path)
            for _ in range(3):
                assert tokens.accepts("anna")
    errors = [each["error"] for each in logged]
    assert len(errors) == len(set(errors)) == 3


@pytest.mark.parametrize("content", ["", "# later\n"])
def test_an_access_file_without_entries_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "access.toml"
    file.write_text(content)
    with pytest.raises(FlussTieringError, match=r"access\.toml is empty: expected \[\[grants\]\]"):
        AccessFile(file)
    file.write_text("grants = []")
    assert AccessFile(file).grants_of(["oidc/anna"]) == ()
    file.chmod(0o606)
    with pytest.raises(FlussTieringError, match=r"everybody on this machine may write .*chmod o-w"):
        AccessFile(file)


@pytest.mark.parametrize("days", [-1, 30])
def test_a_certificate_that_has_expired_is_warned_of(tmp_path: Path, days: int) -> None:
    authority = Authority(tmp_path)
    pair = authority.pair("server", "server", valid=timedelta(days=days, hours=12))
    with capture_logs() as logged:
        ServerTls(TlsFiles(pair.cert, pair.key, None))
    warned = [each["event"] for each in logged if each["log_level"] == "warning"]
    assert len(warned) == (days < 0)
    assert all("the server's certificate is not valid now" in each for each in warned)


def samples(collector: ServerCollector, name: str) -> list[tuple[dict[str, str], float]]:
    found: list[Metric] = [each for each in collector.collect() if each.name == name]
    return [(sample.labels, sample.value) for each in found for sample in each.samples]


def test_metrics_tell_of_files_that_are_not_in_force_and_of_tokens_that_expire(tokens: Tokens) -> None:
    collector = ServerCollector(SystemClock())
    assert samples(collector, "fluss_tiering_unread_files") == []
    collector.tokens, collector.watched_files = tokens.tokens, [tokens.tokens.watched]
    tokens.add("bert", tokens.now + timedelta(days=2))
    assert tokens.accepts("bert")
    ((labels, days),) = samples(collector, "fluss_tiering_token_expiry_days")
    assert labels == {"id": tokens.texts["bert"].split("_")[1], "name": "bert"}
    assert days == 2
    assert samples(collector, "fluss_tiering_unread_files") == [({"of": "the tokens"}, 0)]
    tokens.file.path.write_text("{")
    assert tokens.accepts("bert")
    assert samples(collector, "fluss_tiering_unread_files") == [({"of": "the tokens"}, 1)]
