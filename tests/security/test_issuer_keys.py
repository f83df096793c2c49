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
from fluss_tiering.server.metrics.server import ServerCollector
from fluss_tiering.server.security.access_file import AccessFile
from fluss_tiering.server.security.authentication import Authenticated, CallCredentials
from fluss_tiering.server.security.oidc import issuer as issuers_of
from fluss_tiering.server.security.oidc import tokens as tokens_module
from fluss_tiering.server.security.oidc.issuer_keys import IssuerKeys, fetch_keys
from fluss_tiering.server.security.oidc.signing_keys import read_key_set
from fluss_tiering.server.security.oidc.tokens import OidcTokens
from waiting import WAIT_S

ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer() as running:
        yield running


def settings_of(issuer: Issuer, jwks_url: str = "") -> issuers_of.Issuer:
    return issuers_of.Issuer(issuer.url, AUDIENCE, jwks_url, "sub", "groups", {}, 60)


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


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("kid", ["named", None])
async def test_each_algorithm_is_verified(issuer: Issuer, tmp_path: Path, algorithm: str, kid: str | None) -> None:
    issuer.keys = [Key(kid, algorithm), Key("other", algorithm)]
    async with caller_of(issuer, tmp_path) as caller:
        token = issuer.token(issuer.keys[0])
        assert (await caller.known(token)).identity.name == "oidc/anna"
        begin, _, signature = token.rpartition(".")
        changed = f"{begin}.{'B' if signature[0] == 'A' else 'A'}{signature[1:]}"
        assert (await caller.refusal(changed)).code is ErrorCode.AUTHENTICATION
        assert (await caller.refusal(issuer.token(Key(kid, algorithm)))).code is ErrorCode.AUTHENTICATION


USELESS: dict[str, Callable[[], object]] = {
    "for encryption": lambda: Key("k").jwk(use="enc"),
    "for signing": lambda: Key("k").jwk(key_ops=["sign"]),
    "for nothing known": lambda: Key("k").jwk(key_ops=7),
    "another alg": lambda: Key("k").jwk(alg="ECDH-ES"),
    "alg of another curve": lambda: Key("k").jwk(alg="ES384"),
    "alg of a secret": lambda: Key("k").jwk(alg="HS256"),
    "a list as alg": lambda: Key("k").jwk(alg=["ES256"]),
    "a number as kid": lambda: Key("k").jwk(kid=7),
    "no point of the curve": lambda: Key("k").jwk(x="AAAA"),
    "an unknown curve": lambda: Key("k").jwk(crv="P-999"),
    "an RSA key without a number": lambda: Key("k", "RS256").jwk(n="!"),
    "a short RSA key": lambda: Key("k", "RS256", bits=1024).jwk(),
    "a list as kty": lambda: Key("k", "RS256").jwk(kty=["RSA"]),
    "a secret": lambda: {"kty": "oct", "k": "c2VjcmV0", "kid": "k", "alg": "HS256"},
    "an empty RSA key": lambda: {"kty": "RSA"},
    "a text": lambda: "key",
    "null": lambda: None,
}


@pytest.mark.parametrize("entry", USELESS.values(), ids=USELESS)
def test_a_key_that_cannot_verify_tokens_is_left_out(entry: Callable[[], object]) -> None:
    good = Key("good").jwk()
    assert [key.kid for key in read_key_set({"keys": [entry(), good, good]})] == ["good"]
    assert read_key_set({"keys": entry()}) == ()


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


async def test_a_key_in_other_words_is_the_same_key(issuer: Issuer, tmp_path: Path) -> None:
    async with caller_of(issuer, tmp_path) as caller:
        token = issuer.token()
        await caller.known(token)
        documents = issuer.documents()
        documents["/realms/shop/keys"] = {"keys": [issuer.keys[0].jwk(x5t="thumbprint")]}
        issuer.answer = lambda handler: answer_json(handler, documents.get(handler.path))
        await caller.keys.newer()
        assert (await caller.known(token)).is_valid()


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
    collector.issuer_keys = keys = IssuerKeys(settings_of(issuer))
    works = issuer.answer
    issuer.answer = lambda handler: handler.send_error(503)
    for failures in (1, 2):
        await keys._fetch_now()
        assert exported() == [failures]
    issuer.answer = works
    await keys._fetch_now()
    assert exported() == [0]


async def test_no_call_waits_for_an_issuer_that_was_away(issuer: Issuer, tmp_path: Path) -> None:
    issuer.answer = lambda handler: handler.send_error(503)
    async with caller_of(issuer, tmp_path, pause_s=1000) as caller, asyncio.timeout(WAIT_S):
        assert (await caller.refusal(issuer.token())).code is ErrorCode.UNAVAILABLE


async def test_many_unknown_tokens_cause_one_fetch_in_a_while(issuer: Issuer, tmp_path: Path) -> None:
    async with caller_of(issuer, tmp_path, pause_s=1000) as caller:
        before = len(issuer.requested)
        foreign = issuer.token(Key("unknown"))
        calls = [asyncio.ensure_future(caller.known(foreign)) for _ in range(300)]
        await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        refused = [each.exception() for each in calls if each.done()]
        assert len(refused) == 100, "200 wait"
        assert all(isinstance(each, FlussTieringError) and each.code is ErrorCode.UNAVAILABLE for each in refused)
        assert (await caller.known(issuer.token())).is_valid(), "other calls do not wait"
        await fetch_keys(settings_of(issuer))
        assert len(issuer.requested) == before + 2, "only the test has asked, for two documents"
        await caller.keys.stop()
        ended = await asyncio.gather(*calls, return_exceptions=True)
        assert {each.code for each in ended if isinstance(each, FlussTieringError)} == {ErrorCode.UNAVAILABLE}
        assert len(ended) == 300


async def test_calls_that_are_broken_off_while_they_wait_harm_nothing(issuer: Issuer, tmp_path: Path) -> None:
    async with caller_of(issuer, tmp_path) as caller:
        issuer.keys.append(Key("second"))
        broken_off = asyncio.ensure_future(caller.known(issuer.token()))
        await asyncio.sleep(0)
        broken_off.cancel()
        assert (await caller.known(issuer.token())).is_valid()


async def test_keys_are_read_where_the_settings_say(issuer: Issuer) -> None:
    keys = await fetch_keys(settings_of(issuer, f"{issuer.url}/keys"))
    assert [key.kid for key in keys] == ["first"]
    assert issuer.requested == ["/realms/shop/keys"]


async def test_an_issuer_over_https_needs_a_certificate_of_a_known_authority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path / "ca")
    with Issuer(tls=authority.pair("issuer", "issuer")) as issuer:
        with pytest.raises(FlussTieringError, match="certificate verify failed"):
            await fetch_keys(settings_of(issuer))
        assert issuer.requested == []
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.cert))
        assert [key.kid for key in await fetch_keys(settings_of(issuer))] == ["first"]


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


def _drip(text: bytes) -> Callable[[BaseHTTPRequestHandler], None]:
    """Answer a byte now and then, so that no step takes long, and all of it for ever."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(text)
        try:
            while True:
                handler.wfile.write(b" ")
                time.sleep(0.02)
        except OSError:
            pass

    return answer


def _wait(handler: BaseHTTPRequestHandler) -> None:
    handler.connection.recv(1)


WRONG = {
    "a page": (_text(b"<html>"), "answered no JSON"),
    "nothing": (_text(b""), "answered no JSON"),
    "bytes": (_text(bytes(range(256))), "answered no JSON"),
    "deep JSON": (_text(b"[" * 100_000), "answered no JSON"),
    "a list": (_text(b"[]"), "answered JSON of another kind"),
    "too much": (_text(b" " * (2 << 20)), "answered more than 1 MB"),
    "an error": (lambda handler: handler.send_error(500), "answered 500"),
    "nothing there": (lambda handler: handler.send_error(404), "answered 404"),
    "a redirect": (_redirect, "no redirect is followed"),
    "no answer": (_hang_up, "gave no answer"),
    "no HTTP": (_drip(b"\n" * 70_000), "gave no answer"),
    "silence": (_wait, "there was no whole answer within"),
    "a slow header": (_drip(b"HTTP/1.0 200 OK\r\nX-Slow: "), "there was no whole answer within"),
    "a slow body": (_drip(b"HTTP/1.0 200 OK\r\n\r\n"), "there was no whole answer within"),
    "another issuer": (lambda handler: answer_json(handler, {"issuer": "https://other"}), "of the issuer 'https"),
    "no issuer": (lambda handler: answer_json(handler, {}), "is of the issuer None"),
}


@pytest.mark.parametrize(("answer", "told"), WRONG.values(), ids=WRONG)
async def test_an_issuer_that_answers_something_else_is_reported(
    issuer: Issuer, answer: Callable[[BaseHTTPRequestHandler], None], told: str
) -> None:
    issuer.answer = answer
    with pytest.raises(FlussTieringError) as error:
        await fetch_keys(settings_of(issuer), seconds=1)
    assert (error.value.code, told in error.value.message) == (ErrorCode.UNAVAILABLE, True), error.value.message


@pytest.mark.parametrize(
    ("configuration", "told"),
    [
        ({}, "jwks_uri of http"),
        ({"jwks_uri": "http://10.0.0.1/keys"}, "expected a URL such as https://"),
        ({"jwks_uri": "file:///etc/hosts"}, "expected a URL such as https://"),
        ({"jwks_uri": 7}, "expected a URL such as https://"),
    ],
    ids=str,
)
async def test_keys_are_not_read_from_an_address_that_others_could_answer_for(
    issuer: Issuer, configuration: dict[str, object], told: str
) -> None:
    issuer.answer = lambda handler: answer_json(handler, {"issuer": issuer.url} | configuration)
    with pytest.raises(FlussTieringError) as error:
        await fetch_keys(settings_of(issuer))
    assert told in error.value.message


@pytest.mark.parametrize("keys", [None, {}, {"keys": []}, {"keys": "x"}, {"keys": [{"kty": "oct"}]}], ids=str)
async def test_an_issuer_without_a_usable_key_is_reported(issuer: Issuer, keys: object) -> None:
    configuration = issuer.documents()["/realms/shop/.well-known/openid-configuration"]
    issuer.answer = lambda handler: answer_json(handler, keys if handler.path.endswith("/keys") else configuration)
    with pytest.raises(FlussTieringError) as error:
        await fetch_keys(settings_of(issuer))
    assert error.value.code is ErrorCode.UNAVAILABLE
    assert "has no key for signatures" in error.value.message or "answered" in error.value.message
