"""A proxy before a REST catalog that hands out OAuth2 tokens for a secret, and takes requests with a token only."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qs

from http_proxy import Proxy

TOKENS_PATH: Final = "/v1/oauth/tokens"
_EXPIRE_S: Final = 20
"""Short, so that tokens are renewed while the job runs."""


class TokenProxy(Proxy):
    """The proxy.

    Args:
        upstream: The catalog, which takes all requests, as HOST:PORT.
        credential: What a client proves itself with, "id:secret".
    """

    def __init__(self, upstream: str, credential: str) -> None:
        super().__init__(upstream)
        self._client = tuple(credential.split(":"))
        self._tokens: set[str] = set()

    def handle(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Any:
        if path == TOKENS_PATH:
            return self._token(parse_qs(body.decode()))
        sent = {name.lower(): value for name, value in headers.items()}
        if sent.get("authorization", "").removeprefix("Bearer ") not in self._tokens:
            return _answer(401, {"error": {"code": 401, "type": "NotAuthorizedException", "message": "no such token"}})
        return self.forward(method, path, headers, body)

    def _token(self, asked: dict[str, list[str]]) -> Any:
        exchanged = asked.get("subject_token", [""])[0] in self._tokens
        client = tuple(asked.get(name, [""])[0] for name in ("client_id", "client_secret"))
        if not exchanged and client != self._client:
            return _answer(401, {"error": "invalid_client", "error_description": "the secret is wrong"})
        token = secrets.token_hex()
        self._tokens.add(token)
        kind = "urn:ietf:params:oauth:token-type:access_token"
        return _answer(
            200,
            {"access_token": token, "token_type": "bearer", "issued_token_type": kind, "expires_in": _EXPIRE_S},
        )


def _answer(status: int, content: object) -> tuple[int, dict[str, str], bytes]:
    return status, {"Content-Type": "application/json"}, json.dumps(content).encode()
