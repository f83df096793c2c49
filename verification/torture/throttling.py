"""A proxy in front of an S3 server that refuses requests for a while, as S3 does with a client that sends too many."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from http_proxy import Proxy, s3_refusal


class ThrottlingProxy(Proxy):
    """The running proxy, as a context manager.

    Attributes:
        share: The share of requests that are refused, of 1.
        refused: How many were refused.
    """

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self.share = 0.0
        self.refused = 0
        self._chance = random.Random()

    def handle(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Any:
        if self._chance.random() >= self.share:
            return self.forward(method, path, headers, body)
        self.refused += 1
        return s3_refusal(503, "SlowDown", "Please reduce your request rate.")
