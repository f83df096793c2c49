"""The metrics port: it has the certificates of the gRPC port, and asks who scrapes."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from certificates import Authority, Pair
from engine_support import ServerThread
from fluss_tiering.server.edge.callers.roles import Grant
from fluss_tiering.server.edge.callers.tokens import StaticToken, TokenFile
from waiting import wait_until

UNREAD = "fluss_tiering_unread_files"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


@pytest.fixture
def tokens(tmp_path: Path) -> dict[str, str]:
    file = TokenFile(tmp_path / "tokens.json")
    texts = {}
    for name, grant in {"reader": Grant.parse("reader"), "of shop": Grant.parse("reader", "shop.*")}.items():
        token, texts[name] = StaticToken.create(name, [grant], datetime.now(UTC), None)
        file.add(token)
    return texts


@pytest.fixture
def server(tmp_path: Path, authority: Authority, tokens: dict[str, str]) -> Iterator[ServerThread]:
    pair = authority.pair("server", "server", valid=timedelta(days=9, hours=1))
    with ServerThread(
        tmp_path / "data", tls_cert_file=pair.cert, tls_key_file=pair.key, tokens_file=tmp_path / "tokens.json"
    ) as running:
        yield running


def scrape(server: ServerThread, authority: Authority, token: str | None = None, pair: Pair | None = None) -> str:
    context = ssl.create_default_context(cafile=authority.cert)
    if pair is not None:
        context.load_cert_chain(pair.cert, pair.key)
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(f"https://127.0.0.1:{server.server.metrics_port}/metrics", headers=headers)
    with urllib.request.urlopen(request, timeout=30, context=context) as answer:
        text: str = answer.read().decode()
        return text


def test_a_reader_of_all_tables_scrapes_and_nobody_else(
    server: ServerThread, authority: Authority, tokens: dict[str, str]
) -> None:
    assert "fluss_coordinator_activeCoordinatorCount 1.0" in scrape(server, authority, tokens["reader"])
    for token, status, told in [
        (None, 401, "this server answers nobody who does not prove who they are"),
        ("flt_0_0", 401, "the token is not valid here"),
        (tokens["of shop"], 403, "token/of shop may not read metrics"),
    ]:
        with pytest.raises(urllib.error.HTTPError) as refused:
            scrape(server, authority, token)
        assert refused.value.code == status
        assert told in refused.value.read().decode()


def test_without_tls_there_is_no_answer(server: ServerThread) -> None:
    with pytest.raises(OSError):
        urllib.request.urlopen(f"http://127.0.0.1:{server.server.metrics_port}/metrics", timeout=30)


def expiry_days(text: str) -> float:
    for family in text_string_to_metric_families(text):
        if family.name == "fluss_tiering_tls_certificate_expiry_days":
            return float(family.samples[0].value)
    raise AssertionError(text)


def test_the_days_until_expiry_follow_the_certificate(
    server: ServerThread, authority: Authority, tokens: dict[str, str]
) -> None:
    assert expiry_days(scrape(server, authority, tokens["reader"])) == pytest.approx(9, abs=0.1)
    authority.pair("server", "renewed", valid=timedelta(days=90))
    wait_until(lambda: expiry_days(scrape(server, authority, tokens["reader"])) > 80)


@pytest.mark.parametrize("damage", [Path.unlink, lambda file: file.write_text("half")], ids=["deleted", "half written"])
def test_files_that_are_damaged_are_told_in_a_scrape(
    server: ServerThread, authority: Authority, tokens: dict[str, str], tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    damage(tmp_path / "ca" / "server.key")

    def unread() -> float:
        found = text_string_to_metric_families(scrape(server, authority, tokens["reader"]))
        return sum(each.value for family in found if family.name == UNREAD for each in family.samples)

    wait_until(lambda: unread() > 0)
    authority.pair("server", "mended")
    wait_until(lambda: unread() == 0)


def test_a_certificate_may_scrape_by_its_names(tmp_path: Path, authority: Authority) -> None:
    pair = authority.pair("server", "server")
    access = tmp_path / "access.toml"
    access.write_text('[[grants]]\nidentity = "certificate/CN=prometheus"\nrole = "reader"\n')
    with ServerThread(
        tmp_path / "data",
        tls_cert_file=pair.cert,
        tls_key_file=pair.key,
        tls_client_ca_file=authority.cert,
        access_file=access,
    ) as server:
        assert "activeCoordinatorCount" in scrape(server, authority, pair=authority.pair("p", "prometheus"))
        with pytest.raises(urllib.error.HTTPError) as refused:
            scrape(server, authority, pair=authority.pair("o", "other"))
        assert refused.value.code == 403
        with pytest.raises((urllib.error.URLError, OSError)):
            scrape(server, authority)
