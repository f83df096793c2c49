"""The present keys of an issuer, which PyJWT reads in a thread, again and again."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Final

import jwt
import structlog

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.settings.values import Issuer, checked_url

ALGORITHMS: Final = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
"""The algorithms that are accepted. With those of a shared secret (HS256) whoever verifies tokens could make them."""
_INTERVAL_S: Final = 600.0
_STEP_S: Final = 5.0
"""The longest time without a byte of an answer, in seconds."""

logger = structlog.get_logger(__name__)


class IssuerKeys:
    """The keys of an issuer, by the names that tokens give them. All calls are made on the event loop.

    Keys stay while the issuer cannot be reached, and go once it does not publish them any more.

    Args:
        pause_s: The shortest time between two readings, in seconds. Whoever sends tokens can cause readings.

    Attributes:
        failures: How many readings in a row have failed.
    """

    def __init__(self, issuer: Issuer, *, pause_s: float = 5.0) -> None:
        self.failures = 0
        self._issuer = issuer
        self._pause_s = pause_s
        self._present: dict[str, jwt.PyJWK] = {}
        self._began = -pause_s
        self._lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def find(self, kid: str | None) -> jwt.PyJWK | None:
        """Return the key with a name; None if it is not known."""
        return None if kid is None else self._present.get(kid)

    async def start(self) -> None:
        """Read the keys, and go on to do so. The server starts without them if the issuer is away."""
        with suppress(FlussTieringError):
            await self.read_again()
        self._task = asyncio.create_task(self._keep_reading(), name="keys of the issuer")

    async def stop(self) -> None:
        """Read no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def read_again(self) -> None:
        """Wait for a reading that begins after this call. Many calls share one.

        Raises:
            FlussTieringError: UNAVAILABLE if the issuer gives no keys, also if it gave none a moment ago.
        """
        asked = time.monotonic()
        async with self._lock:
            if self._began < asked:
                left_s = self._began + self._pause_s - time.monotonic()
                if self.failures and left_s > 0:
                    raise self._unknown()
                await asyncio.sleep(left_s)
                self._began = time.monotonic()
                try:
                    self._note(await asyncio.to_thread(self._read))
                except Exception as error:  # noqa: BLE001 - whatever the issuer answers
                    self._note_failure(error)
            if self.failures:
                raise self._unknown()

    async def _keep_reading(self) -> None:
        while True:
            await asyncio.sleep(self._pause_s if self.failures else _INTERVAL_S)
            with suppress(FlussTieringError):
                await self.read_again()

    def _read(self) -> dict[str, jwt.PyJWK]:
        keys = _client(self._keys_url()).get_signing_keys()
        found = {str(key.key_id): key for key in keys if key.algorithm_name in ALGORITHMS}
        if not found:
            raise jwt.PyJWKClientError("the issuer has no key with a name and with a public algorithm")
        return found

    def _keys_url(self) -> str:
        """Return where the issuer says that its keys are (OpenID Connect Discovery 1.0, section 4)."""
        url = self._issuer.configuration_url
        said = _client(url).fetch_data()
        if said.get("issuer") != self._issuer.url:
            raise jwt.PyJWKClientError(f"{url} is of the issuer {said.get('issuer')!r}, not {self._issuer.url!r}")
        return checked_url(str(said.get("jwks_uri")), f"jwks_uri of {url}")

    def _note(self, found: dict[str, jwt.PyJWK]) -> None:
        self.failures = 0
        if found.keys() != self._present.keys():
            logger.info("keys of the issuer have changed", issuer=self._issuer.url, kids=sorted(found))
        self._present = found

    def _note_failure(self, error: Exception) -> None:
        self.failures += 1
        # The 1st, 2nd, 4th, 8th failure and so on.
        if self.failures & (self.failures - 1) == 0:
            logger.error(
                "keys of the issuer cannot be read: tokens are checked with those that are known, others are refused; "
                "check oidc-issuer and the network; the server tries again",
                issuer=self._issuer.url,
                error=error.message if isinstance(error, FlussTieringError) else str(error),
                keys_known=len(self._present),
                failures_in_a_row=self.failures,
            )

    def _unknown(self) -> FlussTieringError:
        return FlussTieringError(
            ErrorCode.UNAVAILABLE,
            f"the server does not know the key of this token, and the issuer {self._issuer.url} gave no keys the last "
            "time: try again in a few seconds; the server's log says more",
        )


def _client(url: str) -> jwt.PyJWKClient:
    return jwt.PyJWKClient(url, cache_jwk_set=False, timeout=_STEP_S)
