"""The metrics port: it has the certificates of the gRPC port, and asks who scrapes."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from certificates import Authority
from metrics_support import scrape, value
from token_support import TokenServer
from waiting import wait_until


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


@pytest.fixture
def server(tmp_path: Path, authority: Authority) -> Iterator[TokenServer]:
    pair = authority.pair("server", "server", valid=timedelta(days=9, hours=1))
    roles = {"reader": ["reader"], "of shop": ["reader=shop.*"]}
    with TokenServer(tmp_path, roles, tls_cert_file=pair.cert, tls_key_file=pair.key) as running:
        yield running


def test_a_reader_of_all_tables_scrapes_and_nobody_else(server: TokenServer, authority: Authority) -> None:
    port = server.server.metrics_port
    assert value(scrape(port, authority.cert, server.tokens["reader"]), "fluss_coordinator_activeCoordinatorCount") == 1
    for token, status, told in [
        (None, 401, "this server answers nobody who does not prove who they are"),
        ("flt_0_0", 401, "the token is not valid here"),
        (server.tokens["of shop"], 403, "token/of shop may not read metrics"),
    ]:
        with pytest.raises(urllib.error.HTTPError) as refused:
            scrape(port, authority.cert, token)
        assert refused.value.code == status
        assert told in refused.value.read().decode()


def test_without_tls_there_is_no_answer(server: TokenServer) -> None:
    with pytest.raises(OSError):
        urllib.request.urlopen(f"http://127.0.0.1:{server.server.metrics_port}/metrics", timeout=30)


def test_the_days_until_expiry_follow_the_certificate(server: TokenServer, authority: Authority) -> None:
    def expiry_days() -> float:
        samples = scrape(server.server.metrics_port, authority.cert, server.tokens["reader"])
        return value(samples, "fluss_tiering_tls_certificate_expiry_days")

    assert expiry_days() == pytest.approx(9, abs=0.1)
    authority.pair("server", "renewed", valid=timedelta(days=90))
    wait_until(lambda: expiry_days() > 80)


def test_files_that_are_damaged_are_told_in_a_scrape(server: TokenServer, authority: Authority, tmp_path: Path) -> None:
    def unread() -> float:
        samples = scrape(server.server.metrics_port, authority.cert, server.tokens["reader"])
        return sum(count for _, count in samples["fluss_tiering_unread_files"])

    damages: list[Callable[[Path], object]] = [Path.unlink, lambda file: file.write_text("half")]
    for damage in damages:
        damage(tmp_path / "ca" / "server.key")
        wait_until(lambda: unread() > 0)
        authority.pair("server", "mended")
        wait_until(lambda: unread() == 0)
