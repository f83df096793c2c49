"""Tokens of an issuer of OpenID Connect, brought to a real server: which are accepted, and every trap that we know."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import grpc
import pytest
from callers import call
from issuers import AUDIENCE, Issuer, Key, encoded, joined, signed_with_secret
from typer.testing import CliRunner

from cases import cases
from engine_support import ServerThread, new_table
from fluss_tiering.cli.main import app
from fluss_tiering.client import TieringClient
from fluss_tiering.client.security import ClientSecurity
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket
from fluss_tiering.server.edge import listener
from fluss_tiering.server.edge.callers.issuer_keys import IssuerKeys
from fluss_tiering.server.services import lake_tiering
from fluss_tiering.server.settings.server_settings import load_settings
from waiting import wait_until

pytestmark = pytest.mark.slow

LIST = "/fluss_tiering.v1.LakeTiering/ListTieringStatuses"
DROP = "/fluss_tiering.v1.Tables/DropTable"
ACCESS = """
[[grants]]
identity = "oidc/anna"
role = "reader"

[[grants]]
identity = "oidc-group/admins"
role = "admin"

[[grants]]
identity = "oidc-group/7"
role = "reader"
"""
Make = Callable[[Issuer], str]


def settings_of(issuer: Issuer, folder: Path, **others: object) -> dict[str, object]:
    access = folder / "access.toml"
    access.write_text(ACCESS)
    return {"oidc_issuer": issuer.url, "oidc_audience": AUDIENCE, "access_file": access, **others}


@pytest.fixture(scope="module", autouse=True)
def short_pauses() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(listener, "IssuerKeys", partial(IssuerKeys, pause_s=0.1))
        patched.setattr(lake_tiering, "_SIGN_OF_LIFE_S", 0.1)
        yield


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with Issuer(Key("rsa", "RS256"), Key("first")) as running:
        yield running


@pytest.fixture(scope="module")
def server(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    folder = tmp_path_factory.mktemp("oidc")
    settings = settings_of(issuer, folder)
    with ServerThread(folder / "data", **settings) as running:
        yield running


def listed(server: ServerThread, token: str, path: str = LIST) -> tuple[grpc.StatusCode, str]:
    """Return the status and the details of a list of the statuses with a token."""
    with grpc.insecure_channel(server.target) as channel:
        return call(channel, path, token)


ACCEPTED: dict[str, Make] = {
    "as it should be": Issuer.token,
    "of another key of the issuer": lambda issuer: issuer.token(issuer.keys[0]),
    "one of several audiences": lambda issuer: issuer.token(aud=["other", AUDIENCE]),
    "expired within the clocks' difference": lambda issuer: issuer.token(exp=int(time.time()) - 1),
    "a fraction of a second": lambda issuer: issuer.token(exp=time.time() + 3600.5),
    "another typ": lambda issuer: issuer.token(header={"typ": "at+jwt"}),
    "12 kB of groups": lambda issuer: issuer.token(groups=[f"group-{number:04}" for number in range(700)]),
}


@cases("make", ACCEPTED.values())
def test_a_token_of_the_issuer_is_accepted(server: ServerThread, issuer: Issuer, make: Make) -> None:
    token = make(issuer)
    # More than once: gRPC refuses long metadata at random.
    for _ in range(5):
        assert listed(server, token) == (grpc.StatusCode.OK, "")


def _with_header(issuer: Issuer, algorithm: object, signature: str = "") -> str:
    return f"{joined({'alg': algorithm, 'kid': 'first'}, issuer.claims()).decode()}.{signature}"


def _changed(issuer: Issuer, **claims: object) -> str:
    """Return a token whose claims were changed after it was signed."""
    header, _, signature = issuer.token().split(".")
    return f"{header}.{joined({}, issuer.claims(**claims)).decode().split('.')[1]}.{signature}"


def _confused(issuer: Issuer, kid: str, secret: Callable[[Key], bytes]) -> str:
    key = next(key for key in issuer.keys if key.kid == kid)
    return signed_with_secret({"kid": kid}, issuer.claims(), secret(key))


def _garbage(text: str) -> str:
    return f"{encoded(text.encode())}.{encoded(b'{}')}.{encoded(b'x')}"


NO_JWT = "it is no JSON Web Token"
REFUSED: dict[str, tuple[Make, str]] = {
    "expired": (lambda issuer: issuer.token(exp=int(time.time()) - 61), "it has expired"),
    "not valid yet": (lambda issuer: issuer.token(nbf=int(time.time()) + 3600), "it is not valid yet"),
    "made in the future": (lambda issuer: issuer.token(iat=int(time.time()) + 3600), "it is not valid yet"),
    "without exp": (lambda issuer: issuer.token(exp=None), "it has no claim exp"),
    "exp is a text": (lambda issuer: issuer.token(exp="never"), "its claims are not those"),
    "exp is a number as a text": (lambda issuer: issuer.token(exp="99999999999"), "its claim exp is no time"),
    "exp is infinite": (lambda issuer: issuer.token(exp=float("inf")), "its claims are not those"),
    "exp is no number": (lambda issuer: issuer.token(exp=float("nan")), "its claims are not those"),
    "exp is huge": (lambda issuer: issuer.token(exp=10**400), "its claim exp is no time"),
    "another issuer": (lambda issuer: issuer.token(iss="https://other.example.com"), "another issuer made it"),
    "an issuer that begins alike": (lambda issuer: issuer.token(iss=issuer.url + "/"), "another issuer made it"),
    "a part of the issuer": (lambda issuer: issuer.token(iss=issuer.url[:-1]), "another issuer made it"),
    "no issuer": (lambda issuer: issuer.token(iss=None), "another issuer made it"),
    "another audience": (lambda issuer: issuer.token(aud="other"), "it is for another audience"),
    "other audiences": (lambda issuer: issuer.token(aud=["other", "others"]), "it is for another audience"),
    "no audiences": (lambda issuer: issuer.token(aud=[]), "it has no claim aud"),
    "no audience": (lambda issuer: issuer.token(aud=None), "it has no claim aud"),
    "an audience of another kind": (lambda issuer: issuer.token(aud={AUDIENCE: 1}), "it is for another audience"),
    "no subject": (lambda issuer: issuer.token(sub=None), "its claim sub does not name the caller"),
    "an empty subject": (lambda issuer: issuer.token(sub=""), "its claim sub does not name the caller"),
    "a number as subject": (lambda issuer: issuer.token(sub=7), "its claims are not those"),
    "a subject of two lines": (lambda issuer: issuer.token(sub="anna\nadmin"), "its claim sub does not name"),
    "a long subject": (lambda issuer: issuer.token(sub="a" * 256), "its claim sub does not name the caller"),
    "alg none": (lambda issuer: _with_header(issuer, "none"), "it is signed with 'none'"),
    "alg NoNe": (lambda issuer: _with_header(issuer, "NoNe"), "it is signed with 'NoNe'"),
    "alg none, with a signature": (lambda issuer: _with_header(issuer, "none", encoded(b"x" * 64)), "signed with"),
    "no alg": (lambda issuer: _with_header(issuer, None), "it is signed with 'None'"),
    "alg is a list": (lambda issuer: _with_header(issuer, ["ES256"]), "it is signed with"),
    "HS256 of the public RSA key": (lambda issuer: _confused(issuer, "rsa", lambda key: key.pem), "'HS256'"),
    "HS256 of the public EC key": (lambda issuer: _confused(issuer, "first", lambda key: key.pem), "'HS256'"),
    "HS256 of the key in JSON": (
        lambda issuer: _confused(issuer, "rsa", lambda key: json.dumps(key.jwk()).encode()),
        "it is signed with 'HS256'",
    ),
    "HS256 of nothing": (lambda issuer: _confused(issuer, "rsa", lambda _: b""), "it is signed with 'HS256'"),
    "no signature": (lambda issuer: _with_header(issuer, "ES256"), "its signature is wrong"),
    "a signature of zeros": (lambda issuer: _with_header(issuer, "ES256", encoded(bytes(64))), "signature is wrong"),
    "changed claims": (lambda issuer: _changed(issuer, sub="mallory"), "its signature is wrong"),
    "a key of somebody else": (lambda issuer: issuer.token(Key("first")), "its signature is wrong"),
    "another algorithm of the key": (
        lambda issuer: issuer.token(issuer.keys[0], {"alg": "PS256"}),
        "its signature is wrong",
    ),
    "an algorithm of another kind of key": (lambda issuer: issuer.token(header={"alg": "RS256"}), "is wrong"),
    "an unknown extension": (lambda issuer: issuer.token(header={"crit": ["x"], "x": 1}), NO_JWT),
    "a payload that is not signed": (lambda issuer: issuer.token(header={"crit": ["b64"], "b64": False}), NO_JWT),
    "a kid of another kind": (lambda issuer: issuer.token(header={"kid": 1}), NO_JWT),
    "a key of its own": (
        lambda issuer: issuer.token(own := Key("first"), {"jwk": own.jwk()}),
        "its signature is wrong",
    ),
    "an unknown kid": (lambda issuer: issuer.token(Key("unknown")), "of no key that the issuer publishes"),
    "no JSON": (lambda _: _garbage("{no"), NO_JWT),
    "a list": (lambda _: f"e{_garbage('[1]')}", NO_JWT),
    "too deep": (lambda _: _garbage('{"a":' + "[" * 5000), NO_JWT),
    "only dots": (lambda _: "e..", NO_JWT),
    "five parts": (lambda issuer: issuer.token() + ".x.x", "it is unknown, expired or revoked"),
    "two parts": (lambda issuer: issuer.token().rpartition(".")[0], "it is unknown, expired or revoked"),
    "more than fits": (lambda issuer: issuer.token(groups="g" * 12_500), "expected 16000 at most"),
}


@cases(("make", "told"), REFUSED.values())
def test_any_other_token_is_refused(server: ServerThread, issuer: Issuer, make: Make, told: str) -> None:
    token = make(issuer)
    status, details = listed(server, token)
    assert (status, told in details) == (grpc.StatusCode.UNAUTHENTICATED, True), details
    assert token not in details


def test_100_kb_are_refused_before_they_are_read(server: ServerThread, issuer: Issuer) -> None:
    status, _ = listed(server, issuer.token(groups="g" * 75_000))
    assert status is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert listed(server, issuer.token())[0] is grpc.StatusCode.OK


def test_keys_that_a_token_points_to_are_not_asked_for(server: ServerThread, issuer: Issuer) -> None:
    own = Key("first")
    with Issuer(own) as foreign:
        for name in ("jku", "x5u"):
            status, _ = listed(server, issuer.token(own, {name: f"{foreign.url}/keys"}))
            assert status is grpc.StatusCode.UNAUTHENTICATED
            assert listed(server, issuer.token(header={name: f"{foreign.url}/keys"}))[0] is grpc.StatusCode.OK
        assert foreign.requested == []


@pytest.mark.parametrize("groups", ["admins", ["others", "admins"], ["admins", 7, None]], ids=str)
def test_groups_give_roles(server: ServerThread, issuer: Issuer, groups: object) -> None:
    status, details = listed(server, issuer.token(sub="bert", groups=groups), DROP)
    assert status is grpc.StatusCode.INVALID_ARGUMENT, details


@cases("groups", [None, "other", [], {"admins": 1}, 7, ["oidc-group/admins"], "anna"])
def test_who_has_no_role_is_told_the_name_for_the_access_file(
    server: ServerThread, issuer: Issuer, groups: object
) -> None:
    status, details = listed(server, issuer.token(sub="bert", groups=groups))
    assert status is grpc.StatusCode.PERMISSION_DENIED
    assert "oidc/bert may not call ListTieringStatuses: it takes the role reader" in details


def test_an_address_names_a_caller_only_if_the_issuer_has_verified_it(issuer: Issuer, tmp_path: Path) -> None:
    with ServerThread(tmp_path / "data", **settings_of(issuer, tmp_path, oidc_identity_claim="email")) as running:
        assert listed(running, issuer.token(email="anna", email_verified=True))[0] is grpc.StatusCode.OK
        for claims in ({}, {"email_verified": False}, {"email_verified": "false"}, {"email_verified": 1}):
            status, details = listed(running, issuer.token(email="anna", **claims))
            assert status is grpc.StatusCode.UNAUTHENTICATED, claims
            assert "email_verified" in details


def test_a_stream_ends_when_its_role_is_taken_away(issuer: Issuer, tmp_path: Path) -> None:
    settings = settings_of(issuer, tmp_path)
    with (
        ServerThread(tmp_path / "data", **settings) as server,
        TieringClient(server.target, security=ClientSecurity(token=issuer.token())) as client,
    ):
        changes = client.watch_tiering_statuses()
        next(changes)
        (tmp_path / "access.toml").write_text("grants = []\n")
        with pytest.raises(FlussTieringError) as ended:
            for _ in changes:
                pass
    assert ended.value.code is ErrorCode.AUTHENTICATION


def test_executors_of_a_query_read_as_long_as_one_of_its_groups_may(issuer: Issuer, tmp_path: Path) -> None:
    settings = settings_of(issuer, tmp_path)
    token = issuer.token(sub="bert", groups=["no role", "admins"])
    with (
        ServerThread(tmp_path / "data", **settings) as server,
        TieringClient(server.target, security=ClientSecurity(token=token)) as client,
    ):
        table = new_table(client, [1])
        bucket = TableBucket(table.table_id, 0)
        with TieringClient(server.target, security=ClientSecurity(client.create_read_token(table.path))) as executor:
            assert list(executor.fetch_log(bucket, 0, 1))
            (tmp_path / "access.toml").write_text(ACCESS.replace("oidc-group/admins", "oidc-group/others"))
            wait_until(lambda: _error_of(lambda: list(executor.fetch_log(bucket, 0, 1))) is ErrorCode.AUTHENTICATION)


def _error_of(call_: Callable[[], object]) -> ErrorCode | None:
    try:
        call_()
    except FlussTieringError as error:
        return error.code
    return None


def test_a_server_starts_without_its_issuer_and_knows_it_once_it_is_back(tmp_path: Path) -> None:
    with Issuer() as issuer:
        settings = settings_of(issuer, tmp_path)
    with ServerThread(tmp_path / "data", **settings) as server:
        status, details = listed(server, issuer.token())
        assert status is grpc.StatusCode.UNAVAILABLE
        assert "the server does not know the key of this token" in details
        with issuer:
            wait_until(lambda: listed(server, issuer.token())[0] is grpc.StatusCode.OK)
        assert listed(server, issuer.token())[0] is grpc.StatusCode.OK, "the keys are known while it is away"


def test_no_call_fails_when_a_key_is_new(tmp_path: Path) -> None:
    with Issuer(Key("first")) as issuer, ServerThread(tmp_path / "data", **settings_of(issuer, tmp_path)) as server:
        old = issuer.token()
        assert listed(server, old)[0] is grpc.StatusCode.OK
        issuer.keys.append(Key("second", "RS256"))
        assert listed(server, issuer.token())[0] is grpc.StatusCode.OK, "the first token of a new key"
        assert listed(server, old)[0] is grpc.StatusCode.OK


def test_whoever_scrapes_metrics_may_bring_a_token_too(tmp_path: Path) -> None:
    def scraped(token: str) -> int:
        url = f"http://127.0.0.1:{server.server.metrics_port}/metrics"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    with Issuer() as issuer, ServerThread(tmp_path / "data", **settings_of(issuer, tmp_path)) as server:
        assert scraped(issuer.token()) == 200
        assert scraped(issuer.token(aud="other")) == 401
        assert scraped(issuer.token(sub="bert")) == 403
        issuer.keys.append(Key("second"))
        assert scraped(issuer.token()) == 200, "the first token of a new key"
        issuer.answer = lambda handler: handler.send_error(503)
        assert scraped(issuer.token(Key("third"))) == 503


def test_static_tokens_are_known_beside_an_issuer(issuer: Issuer, tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    made = CliRunner().invoke(app, ["token", "create", "-f", str(file), "ci", "-r", "reader"], catch_exceptions=False)
    with ServerThread(tmp_path / "data", **settings_of(issuer, tmp_path, tokens_file=file)) as server:
        assert listed(server, made.stdout.strip())[0] is grpc.StatusCode.OK
        assert listed(server, issuer.token())[0] is grpc.StatusCode.OK
        assert listed(server, "")[0] is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"oidc_issuer": "http://login.example.com"}, "expected a URL such as https://"),
        ({"oidc_issuer": "https://a:b@login.example.com"}, "expected a URL such as https://"),
        ({"oidc_issuer": "https:///realms/shop"}, "expected a URL such as https://"),
        ({"oidc_issuer": "https://login.example.com:x"}, "expected a URL such as https://"),
        ({"oidc_issuer": "file:///etc/hosts"}, "expected a URL such as https://"),
        ({"oidc_audience": ""}, "without oidc-audience or without access-file"),
        ({"access_file": None}, "without oidc-audience or without access-file"),
        ({"oidc_issuer": "", "access_file": None}, "oidc-audience is set without oidc-issuer"),
        ({"oidc_issuer": "", "oidc_audience": ""}, "or oidc-issuer, for tokens of OpenID Connect"),
    ],
    ids=lambda value: "" if isinstance(value, str) else str(value),
)
def test_settings_that_do_not_fit_together_are_refused(changed: dict[str, object], told: str, tmp_path: Path) -> None:
    settings: dict[str, object] = {
        "data_dir": tmp_path,
        "oidc_issuer": "https://login.example.com",
        "oidc_audience": AUDIENCE,
        "access_file": tmp_path / "access.toml",
    }
    assert load_settings(**settings).asks_callers
    with pytest.raises(FlussTieringError) as error:
        load_settings(**(settings | changed))
    assert told in error.value.message
