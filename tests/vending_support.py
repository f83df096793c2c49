"""Proxies for credentials that a catalog vends: one before a REST catalog, which vends, and one before S3, which looks.

The catalog and the store behind them are real. The store itself takes requests of everybody.
"""

from __future__ import annotations

import http
import itertools
import json
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from http_proxy import Proxy, s3_refusal

_KEY_ID: Final = re.compile(r"Credential=([^/]+)/")
_TABLE: Final = re.compile(r"/v1/namespaces/[^/]+/tables(/[^/]+)?$")
EXPIRED: Final = (400, "ExpiredToken", "The provided token has expired.")
UNKNOWN: Final = (403, "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records.")
"""What S3 answers: the status, the code and the message."""
_NUMBERS: Final = itertools.count(1)


@dataclass
class Session:
    """Credentials for a limited time.

    Attributes:
        expires_ms: Until when they are said to be valid; None if that is not told.
        ended: Whether the store says that they have expired.
    """

    number: int = field(default_factory=lambda: next(_NUMBERS))
    expires_ms: int | None = None
    ended: bool = False

    @property
    def key_id(self) -> str:
        return f"vended-key-{self.number}"

    @property
    def token(self) -> str:
        return f"planted-vended-token-{self.number}"

    @property
    def properties(self) -> dict[str, str]:
        """What a catalog vends."""
        told = {} if self.expires_ms is None else {"s3.session-token-expires-at-ms": str(self.expires_ms)}
        return {
            "s3.access-key-id": self.key_id,
            "s3.secret-access-key": f"planted-vended-secret-{self.number}",
            "s3.session-token": self.token,
            **told,
        }


@dataclass(frozen=True)
class S3Request:
    """A request that reached the store.

    Attributes:
        client: "driver" for the JVM's library, "executor" for pyarrow's.
        key_id: The access key id; empty without one.
        ended: Whether it was refused.
    """

    client: str
    key_id: str
    method: str
    path: str
    ended: bool


class S3Gate(Proxy):
    """A store that takes the requests of sessions that have not ended, and writes down who asks.

    Args:
        upstream: The store, which takes every request, as HOST:PORT.
    """

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self.sessions: dict[str, Session] = {}
        self.requests: list[S3Request] = []
        self.refuse_with = UNKNOWN
        self.after: Callable[[S3Request], None] = lambda request: None
        self._lock = threading.Lock()

    def handle(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Any:
        sent = {name.lower(): value for name, value in headers.items()}
        found = _KEY_ID.search(sent.get("authorization", ""))
        key_id = found[1] if found else ""
        session = self.sessions.get(key_id)
        known = session is not None and sent.get("x-amz-security-token") == session.token
        ended = session is None or not known or session.ended
        client = "executor" if "aws-sdk-cpp" in sent.get("user-agent", "").lower() else "driver"
        request = S3Request(client, key_id, method, path.partition("?")[0], ended)
        with self._lock:
            self.requests.append(request)
        if ended:
            answer = s3_refusal(*(EXPIRED if known else self.refuse_with))
        else:
            # The store behind this one does not look at signatures.
            unsigned = {name: sent[name] for name in sent if name not in ("authorization", "x-amz-security-token")}
            answer = self.forward(method, path, unsigned, body)
        with self._lock:
            self.after(request)
        return answer

    def keys_of(self, client: str) -> set[str]:
        """Return the access key ids with which a client asked."""
        return {each.key_id for each in self.requests if each.client == client}


class VendingCatalog(Proxy):
    """A REST catalog that vends credentials with each table that it loads or creates, if it is asked to.

    Args:
        upstream: The catalog, as HOST:PORT.
        vend: Returns what is added to the answer: `config` and `storage-credentials`.
    """

    def __init__(self, upstream: str, vend: Callable[[], Mapping[str, Any]]) -> None:
        super().__init__(upstream)
        self.vend = vend
        self.loads = 0

    def handle(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Any:
        status, told, content = self.forward(method, path, headers, body)
        wanted = {name.lower(): value for name, value in headers.items()}.get("x-iceberg-access-delegation", "")
        if status == http.HTTPStatus.OK and "vended-credentials" in wanted and _TABLE.search(path.partition("?")[0]):
            answer = json.loads(content or "{}")
            if "metadata" in answer and method in ("GET", "POST"):
                self.loads += 1
                vended = self.vend()
                answer["config"] = {**(answer.get("config") or {}), **vended.get("config", {})}
                answer["storage-credentials"] = vended.get("storage-credentials", [])
                content = json.dumps(answer).encode()
        return status, told, content
