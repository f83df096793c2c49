"""`fluss-tiering health`, as probes call it, and `adopt` for a data folder that was moved or copied."""

from __future__ import annotations

import shutil
import socket

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from certificates import Authority
from engine_support import ServerThread
from fluss_tiering.server.core.store.note import StoreKind, StoreNote
from fluss_tiering.storage.data_dir import DataDir


def test_a_server_that_answers_is_serving(command):
    for arguments in ([], ["--active"]):
        answer = command("health", *arguments)
        assert (answer.code, answer.out, answer.err) == (0, "SERVING\n", "")


@pytest.fixture
def standby(tmp_path):
    """A server whose services another one serves."""
    with ServerThread(tmp_path / "data") as running:
        running.run(running.server._listener.set_serving(False))
        yield running


def test_a_standby_server_is_serving_but_not_active(command, standby):
    assert command("health", "--server", standby.target).out == "SERVING\n"
    answer = command("health", "--active", "--server", standby.target)
    assert (answer.code, answer.out) == (1, "NOT_SERVING\n")


def test_no_server_is_an_error(command):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        assert command("health", "--server", f"127.0.0.1:{unused.getsockname()[1]}").refuses(2, "cannot reach")


def test_no_token_is_needed(command, tmp_path):
    assert command("token", "create", "ci", "--file", str(tmp_path / "tokens"), "--role", "reader").code == 0
    with ServerThread(tmp_path / "data", tokens_file=tmp_path / "tokens") as running:
        assert command("status", "--server", running.target).code == 1
        assert command("health", "--server", running.target).code == 0


@pytest.fixture
def mutual(tmp_path):
    """A server with a certificate for another name than its address, which asks clients for theirs."""
    authority = Authority(tmp_path / "ca")
    pair = authority.pair("server", "server", host="tiering.example.com")
    access = tmp_path / "access.toml"
    access.write_text("grants = []\n")
    settings = {"tls_cert_file": pair.cert, "tls_key_file": pair.key, "tls_client_ca_file": authority.cert}
    with ServerThread(tmp_path / "data", access_file=access, **settings) as running:
        yield running, authority


def test_the_name_of_the_certificate_may_be_another_one_than_that_of_the_address(command, mutual, monkeypatch):
    running, authority = mutual
    probe = authority.pair("probe", "probe")
    for name, path in {"CA": authority.cert, "CERT": probe.cert, "KEY": probe.key}.items():
        monkeypatch.setenv(f"FLUSS_TIERING_TLS_{name}", str(path))
    asked = ["health", "--server", running.target]
    assert command(*asked).refuses(2, "TLS handshake")
    assert command(*asked, "--tls-name", "other.example.com").refuses(2, "TLS handshake")
    assert command(*asked, "--tls-name", "tiering.example.com").out == "SERVING\n"
    monkeypatch.setenv("FLUSS_TIERING_HEALTH_TLS_NAME", "tiering.example.com")
    assert command(*asked).out == "SERVING\n"


def test_a_server_with_mutual_tls_asks_the_probe_for_a_certificate(command, mutual, monkeypatch):
    running, authority = mutual
    monkeypatch.setenv("FLUSS_TIERING_TLS_CA", str(authority.cert))
    asked = ["health", "--server", running.target, "--tls-name", "tiering.example.com"]
    assert command(*asked).refuses(2, "client certificate")


@pytest.mark.parametrize("folder", ["", "nowhere"])
def test_a_folder_that_is_none_is_not_adopted(command, tmp_path, monkeypatch, folder):
    monkeypatch.chdir(tmp_path)
    assert command("adopt", folder).refuses(2, f"{folder!r} is no folder")


def test_adopt_says_which_database_a_folder_has_from_now_on(command, tmp_path):
    assert command("adopt", tmp_path, "--store", "sqlite").refuses(2, "is no data folder")
    DataDir.open(tmp_path).close()
    assert "uses postgresql from now on" in command("adopt", tmp_path, "--store", "postgresql").out
    assert StoreNote.read(tmp_path) == StoreNote(StoreKind.POSTGRESQL, may_be_new=True)
    assert command("adopt", tmp_path, "--store", "postgresql://db/tiering").refuses(2, "sqlite")


def test_a_copy_with_a_lake_is_refused(command, tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    DataDir.open(old).close()
    (old / "lake").mkdir()
    catalog = SqlCatalog("fluss_lake", uri=f"sqlite:///{old}/lake/catalog.db", warehouse=f"{old}/lake/warehouse")
    catalog.create_namespace("db")
    catalog.create_table("db.orders", pa.schema({"id": pa.int64()}))
    catalog.engine.dispose()
    shutil.copytree(old, new)
    assert command("adopt", new).refuses(2, "was moved or copied from")
    assert "stands on its own now" in command("adopt", old).out


def test_a_database_that_there_is_not_is_told_in_words(command, tmp_path):
    told = "Invalid value for '--store': Value error, 'mysql' is not one of 'sqlite', 'postgresql'"
    assert command("adopt", tmp_path, "--store", "mysql").refuses(2, told)
