"""Ten thousand calls of callers that are nobody, without a token or with a wrong one. None of them passes."""

from __future__ import annotations

import base64
import random
import string
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import jwt
import pytest
from callers import METHODS, call

from cases import cases
from engine_support import ServerThread, new_table
from fluss_tiering.client import TieringClient
from fluss_tiering.client.security import ClientSecurity
from fluss_tiering.model.tiering import Claim, HeartbeatEntry
from fluss_tiering.server.edge.callers.roles import Grant
from fluss_tiering.server.edge.callers.tokens import StaticToken, TokenFile

CALLS = 10_000
SEED = 20_261_122
PRINTABLE = string.ascii_letters + string.digits + "._-~+/="


@dataclass(frozen=True)
class Guarded:
    """A server, and tokens that it once knew or that look as if it did."""

    target: str
    valid: str
    expired: str
    revoked: str
    ended_round: str


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder: Path = tmp_path_factory.mktemp("guarded")
    file, now = TokenFile(folder / "tokens.json"), datetime.now(UTC)
    texts = {}
    for name, expires in {"valid": None, "revoked": None, "expired": now - timedelta(seconds=1)}.items():
        token, texts[name] = StaticToken.create(name, [Grant.parse("admin")], now, expires)
        file.add(token)
        if name == "revoked":
            file.remove(token.id)
    with ServerThread(folder / "data", tokens_file=file.path) as server:
        with TieringClient(server.target, security=ClientSecurity(token=texts["valid"])) as admin:
            (claim,) = admin.claim_tables([new_table(admin).path], "over", None, "driver")
            assert isinstance(claim, Claim)
            admin.heartbeat(failed=[HeartbeatEntry(claim.table_id, claim.tiering_epoch, "over")])
        yield Guarded(server.target, texts["valid"], texts["expired"], texts["revoked"], claim.executor_token)


def wrong_tokens(guarded: Guarded, chance: random.Random) -> list[Callable[[], str | None]]:
    """Return what makes wrong tokens, each of another kind."""

    def garbage() -> str:
        return "".join(chance.choices(PRINTABLE, k=chance.randrange(1, 300)))

    def changed(text: str) -> str:
        place = chance.randrange(4, len(text))
        other = chance.choice([each for each in string.ascii_letters + string.digits if each != text[place]])
        return text[:place] + other + text[place + 1 :]

    def forged(key: str) -> str:
        claims = {"aud": "fluss-tiering executor", "exp": 2**33, "table": chance.randrange(9), "epoch": None}
        return "flx_" + jwt.encode(claims, key, "HS256" if key else "none")

    return [
        lambda: None,
        lambda: "",
        garbage,
        lambda: f"flt_{garbage()}",
        lambda: f"flx_{garbage()}",
        lambda: changed(guarded.valid),
        lambda: guarded.valid[: chance.randrange(4, len(guarded.valid))],
        lambda: guarded.valid + chance.choice(PRINTABLE),
        lambda: base64.b64encode(guarded.valid.encode()).decode(),
        lambda: guarded.expired,
        lambda: guarded.revoked,
        lambda: guarded.ended_round,
        lambda: changed(guarded.ended_round),
        lambda: forged(""),
        lambda: forged("k" * 32),
    ]


@pytest.mark.long
@pytest.mark.slow
def test_none_of_ten_thousand_calls_of_nobody_is_answered(guarded: Guarded) -> None:
    chance = random.Random(SEED)
    kinds = wrong_tokens(guarded, chance)
    paths = list(METHODS)
    seen: Counter[grpc.StatusCode] = Counter()
    with grpc.insecure_channel(guarded.target) as channel:
        for number in range(CALLS):
            token = kinds[number % len(kinds)]()
            path = chance.choice(paths)
            status, details = call(channel, path, token, chance.randbytes(chance.randrange(40)))
            seen[status] += 1
            assert status is grpc.StatusCode.UNAUTHENTICATED, (number, path, token, status, details)
        # The same way to call is one that a valid token passes.
        status, details = call(channel, "/fluss_tiering.v1.LakeTiering/ListTieringStatuses", guarded.valid)
        assert status is grpc.StatusCode.OK, details
    assert seen == {grpc.StatusCode.UNAUTHENTICATED: CALLS}


@pytest.mark.slow
@cases(
    "authorization",
    ["Basic dXNlcjpwYXNz", "bearer", "Bearer", "Bearer  ", "Token abc", "flt_a_b", "Bearer a, Bearer b"],
)
def test_other_kinds_of_authorization_are_refused(guarded: Guarded, authorization: str) -> None:
    with grpc.insecure_channel(guarded.target) as channel:
        for path in METHODS:
            assert call(channel, path, authorization=authorization)[0] is grpc.StatusCode.UNAUTHENTICATED


def test_two_tokens_are_none(guarded: Guarded) -> None:
    with grpc.insecure_channel(guarded.target) as channel:
        path = "/fluss_tiering.v1.LakeTiering/ListTieringStatuses"
        status, _ = call(channel, path, guarded.valid, authorization="Bearer flt_a_b")
        assert status is grpc.StatusCode.UNAUTHENTICATED
