"""The keys of an issuer: what is read of them, when they are asked for, and issuers that do not answer as expected."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import jwt
import pytest
from issuers import AUDIENCE, Issuer, Key, answer_json

from certificates import Authority
from fluss_tiering.model.clock import SystemClock
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.edge.callers import oidc_tokens as tokens_module
from fluss_tiering.server.edge.callers.access_file import AccessFile
from fluss_tiering.server.edge.callers.authentication import Authenticated, CallCredentials
from fluss_tiering.server.edge.callers.issuer_keys import IssuerKeys
from fluss_tiering.server.edge.callers.oidc_tokens import OidcTokens
from fluss_tiering.server.metrics.server import ServerCollector
from fluss_tiering.server.settings import values as issuers_of
from waiting import WAIT_S

ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer() as running:
        yield running


def settings_of(issuer: Issuer) -> issuers_of.Issuer:
    return issuers_of.Issuer(issuer.url, AUDIENCE, "sub", "groups")


class Caller:
    """Brings tokens to an authenticator whose clock is the test's."""

    def __init__(self, issuer: Issuer, keys: IssuerKeys, access: Path) -> None:
        access.write_text("grants = []\n")
        self.seconds_later = 0.0
        self.keys = keys
        self.tokens = OidcTokens(
            settings_of(issuer), keys, AccessFile(access), lambda: time.time() + self.seconds_later
        )

    async def known(self, token: str) -> Authenticated:
        found = self.tokens.authenticate(CallCredentials(token, {}))
        assert found is not None
        return found if isinstance(found, Authenticated) else await found

    async def refusal(self, token: str) -> FlussTieringError:
        with pytest.raises(FlussTieringError) as error:
            await self.known(token)
        return error.value


@asynccontextmanager
async def caller_of(issuer: Issuer, folder: Path, pause_s: float = 0.0) -> AsyncIterator[Caller]:
    keys = IssuerKeys(settings_of(issuer), pause_s=pause_s)
    await keys.start()
    try:
        yield Caller(issuer, keys, folder / "access.toml")
    finally:
        await keys.stop()


@pytest.mark.slow
async def test_each_algorithm_is_verified(issuer: Issuer, tmp_path: Path) -> None:
    issuer.keys = [Key(algorithm, algorithm) for algorithm in ALGORITHMS]
    async with caller_of(issuer, tmp_path) as caller:
        for key in issuer.keys:
            token = issuer.token(key)
            assert (await caller.known(token)).identity.name == "oidc/anna", key.algorithm
            begin, _, signature = token.rpartition(".")
            changed = f"{begin}.{'B' if signature[0] == 'A' else 'A'}{signature[1:]}"
            assert (await caller.refusal(changed)).code is ErrorCode.AUTHENTICATION
            foreign = issuer.token(Key(key.kid, key.algorithm))
            assert (await caller.refusal(foreign)).code is ErrorCode.AUTHENTICATION


USELESS: dict[str, Callable[[], object]] = {
    "for encryption": lambda: Key("k").jwk(use="enc"),
    "another alg": lambda: Key("k").jwk(alg="ECDH-ES"),
    "alg of a secret": lambda: Key("k").jwk(alg="HS256"),
    "no name": lambda: Key(None).jwk(),
    "no point of the curve": lambda: Key("k").jwk(x="AAAA"),
    "an unknown curve": lambda: Key("k").jwk(crv="P-999"),
    "an RSA key without a number": lambda: Key("k", "RS256").jwk(n="!"),
    "a secret": lambda: {"kty": "oct", "k": "c2VjcmV0", "kid": "k", "alg": "HS256"},
    "an empty RSA key": lambda: {"kty": "RSA"},
}


async def test_a_key_that_cannot_verify_tokens_is_left_out(issuer: Issuer) -> None:
    documents = issuer.documents()
    entries = [entry() for entry in USELESS.values()]
    documents["/realms/shop/keys"] = {"keys": [*entries, Key("good").jwk()]}
    issuer.answer = lambda handler: answer_json(handler, documents.get(handler.path))
    keys = IssuerKeys(settings_of(issuer))
    await keys.read_again()
    assert keys.find("good") is not None
    assert keys.find("k") is None
    assert keys.find(None) is None


async def test_no_time_passes_and_nothing_is_verified_for_a_token_that_is_known(
    issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with caller_of(issuer, tmp_path) as caller:
        token = issuer.token()
        first = await caller.known(token)
        monkeypatch.setattr(jwt, "decode", None)
        again = caller.tokens.authenticate(CallCredentials(token, {}))
        assert isinstance(again, Authenticated)
        assert again.identity == first.identity


async def test_a_token_that_was_known_ends_with_its_time(issuer: Issuer, tmp_path: Path) -> None:
    async with caller_of(issuer, tmp_path) as caller:
        token = issuer.token(exp=int(time.time()) + 3600)
        found = await caller.known(token)
        caller.seconds_later = 3600 + 30
        assert found.is_valid(), "the clocks may differ"
        caller.seconds_later = 3600 + 61
        assert not found.is_valid()
        for _ in range(2):
            assert "it has expired" in (await caller.refusal(token)).message


async def test_a_token_that_was_known_ends_with_its_key(issuer: Issuer, tmp_path: Path) -> None:
    async with caller_of(issuer, tmp_path) as caller:
        old = issuer.token()
        found = await caller.known(old)
        issuer.keys = [Key("second", "RS256")]
        await caller.known(issuer.token())
        assert not found.is_valid()
        assert "of no key that the issuer publishes" in (await caller.refusal(old)).message


async def test_a_key_in_the_place_of_another_ends_the_tokens_of_that(issuer: Issuer, tmp_path: Path) -> None:
    async with caller_of(issuer, tmp_path) as caller:
        found = await caller.known(issuer.token())
        await caller.keys.read_again()
        assert found.is_valid()
        issuer.keys = [Key(issuer.keys[0].kid)]
        await caller.keys.read_again()
        assert not found.is_valid()


async def test_few_tokens_are_remembered(issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens_module, "_MAX_VERIFIED", 2)
    async with caller_of(issuer, tmp_path) as caller:
        for number in range(5):
            await caller.known(issuer.token(jti=str(number)))
            assert len(caller.tokens._verified) == min(number + 1, 2)


async def test_keys_stay_while_the_issuer_is_away_and_new_ones_are_refused(issuer: Issuer, tmp_path: Path) -> None:
    async with caller_of(issuer, tmp_path) as caller:
        old = issuer.token()
        await caller.known(old)
        issuer.answer = lambda handler: handler.send_error(503)
        unknown = await caller.refusal(issuer.token(Key("second")))
        assert unknown.code is ErrorCode.UNAVAILABLE
        assert (await caller.known(old)).is_valid()
        assert (await caller.known(issuer.token())).is_valid()


async def test_the_metric_counts_reads_of_the_keys_that_failed_in_a_row(issuer: Issuer) -> None:
    def exported() -> list[float]:
        name = "fluss_tiering_issuer_keys_failed_reads"
        return [sample.value for each in collector.collect() for sample in each.samples if sample.name == name]

    collector = ServerCollector(SystemClock())
    assert exported() == [], "there is no issuer"
    collector.issuer_keys = keys = IssuerKeys(settings_of(issuer), pause_s=0)
    works = issuer.answer
    issuer.answer = lambda handler: handler.send_error(503)
    for failures in (1, 2):
        with pytest.raises(FlussTieringError):
            await keys.read_again()
        assert exported() == [failures]
    issuer.answer = works
    await keys.read_again()
    assert exported() == [0]


async def test_no_call_waits_for_an_issuer_that_was_away(issuer: Issuer, tmp_path: Path) -> None:
    issuer.answer = lambda handler: handler.send_error(503)
    async with caller_of(issuer, tmp_path, pause_s=1000) as caller, asyncio.timeout(WAIT_S):
        assert (await caller.refusal(issuer.token())).code is ErrorCode.UNAVAILABLE


async def test_many_unknown_tokens_cause_one_reading(issuer: Issuer, tmp_path: Path) -> None:
    async with caller_of(issuer, tmp_path) as caller:
        before = len(issuer.requested)
        foreign = issuer.token(Key("unknown"))
        refused = await asyncio.gather(*(caller.refusal(foreign) for _ in range(300)))
        assert {each.code for each in refused} == {ErrorCode.AUTHENTICATION}
        assert len(issuer.requested) == before + 2, "two documents"


async def test_calls_that_are_broken_off_while_they_wait_harm_nothing(issuer: Issuer, tmp_path: Path) -> None:
    async with caller_of(issuer, tmp_path) as caller:
        issuer.keys.append(Key("second"))
        broken_off = asyncio.ensure_future(caller.known(issuer.token()))
        await asyncio.sleep(0)
        broken_off.cancel()
        assert (await caller.known(issuer.token())).is_valid()


async def test_an_issuer_over_https_needs_a_certificate_of_a_known_authority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path / "ca")
    with Issuer(tls=authority.pair("issuer", "issuer")) as issuer:
        keys = IssuerKeys(settings_of(issuer), pause_s=0)
        with pytest.raises(FlussTieringError):
            await keys.read_again()
        assert issuer.requested == []
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.cert))
        await keys.read_again()
        assert keys.find("first") is not None


def _text(content: bytes) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(content)

    return answer


def _redirect(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(302)
    handler.send_header("Location", "http://127.0.0.1:1/elsewhere")
    handler.end_headers()


def _hang_up(handler: BaseHTTPRequestHandler) -> None:
    handler.connection.shutdown(socket.SHUT_RDWR)


def _configured(**configuration: object) -> Callable[[BaseHTTPRequestHandler], None]:
    return lambda handler: answer_json(handler, configuration)


async def test_an_issuer_that_answers_something_else_gives_no_keys(
    issuer: Issuer, capsys: pytest.CaptureFixture[str]
) -> None:
    here = {"issuer": issuer.url}
    wrong = {
        "a page": _text(b"<html>"),
        "nothing": _text(b""),
        "bytes": _text(bytes(range(256))),
        "a list": _text(b"[]"),
        "an error": lambda handler: handler.send_error(500),
        "a redirect": _redirect,
        "no answer": _hang_up,
        "another issuer": _configured(issuer="https://other"),
        "no issuer": _configured(),
        "no address of keys": _configured(**here),
        "an address that others could answer for": _configured(**here, jwks_uri="http://10.0.0.1/keys"),
        "a file": _configured(**here, jwks_uri="file:///etc/hosts"),
        "no keys": _configured(**here, jwks_uri=f"{issuer.url}/keys", keys=[]),
        "only a secret": _configured(**here, jwks_uri=f"{issuer.url}/keys", keys=[{"kty": "oct", "k": "c2VjcmV0"}]),
    }
    for what, answer in wrong.items():
        issuer.answer = answer
        keys = IssuerKeys(settings_of(issuer))
        with pytest.raises(FlussTieringError) as error:
            await keys.read_again()
        assert error.value.code is ErrorCode.UNAVAILABLE, what
        assert "keys of the issuer cannot be read" in capsys.readouterr().out, what
        assert keys.find("first") is None
