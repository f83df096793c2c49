"""The present keys of an issuer, which are asked for again and again in the background."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import structlog

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.security.oidc.documents import GetJson, read_documents
from fluss_tiering.server.security.oidc.issuer import Issuer, checked_url
from fluss_tiering.server.security.oidc.signing_keys import SigningKey, read_key_set

_INTERVAL_S: Final = 600.0
_PAUSE_S: Final = 5.0
_READ_S: Final = 10.0
_MAX_WAITING: Final = 200

_AWAY: Final = "the issuer gave no keys the last time"
_STOPPING: Final = "the server is stopping"

logger = structlog.get_logger(__name__)


async def fetch_keys(issuer: Issuer, seconds: float = _READ_S) -> tuple[SigningKey, ...]:
    """Return the keys that an issuer publishes now.

    Args:
        issuer: The issuer.
        seconds: The time that this may take.

    Raises:
        FlussTieringError: UNAVAILABLE if they cannot be read, or if there is none.
    """
    return await read_documents(partial(_read, issuer), seconds)


class IssuerKeys:
    """The keys of an issuer. All calls are made on the event loop.

    Keys stay while the issuer cannot be reached, and go once it does not publish them any more.

    Args:
        issuer: The issuer.
        fetch: Returns its keys.
        pause_s: The shortest time between two fetches, in seconds. Whoever sends tokens can cause fetches.
        monotonic: A clock in seconds that never goes back.

    Attributes:
        present: The keys; empty before the first fetch that succeeds.
        failures: How many fetches in a row have failed.
    """

    def __init__(
        self,
        issuer: Issuer,
        fetch: Callable[[], Awaitable[tuple[SigningKey, ...]]] | None = None,
        *,
        pause_s: float = _PAUSE_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.present: tuple[SigningKey, ...] = ()
        self._issuer = issuer
        self._fetch = fetch or partial(fetch_keys, issuer)
        self._pause_s = pause_s
        self._monotonic = monotonic
        self.failures = 0
        self._fetched = -pause_s
        self._asked = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Fetch the keys, and go on to do so. The server starts without them if the issuer is away."""
        await self._fetch_now()
        self._task = asyncio.create_task(self._keep_fetching(), name="keys of the issuer")

    async def stop(self) -> None:
        """Fetch no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        _answer(self._waiting, self._unknown(_STOPPING))

    async def newer(self) -> None:
        """Wait for a fetch that begins after this call. Many calls share one.

        Raises:
            FlussTieringError: UNAVAILABLE if the issuer was away the last time or is now, for which nobody waits, or
                if too many wait.
        """
        self._asked.set()
        if self.failures:
            raise self._unknown(_AWAY)
        if len(self._waiting) >= _MAX_WAITING:
            raise self._unknown("too many calls wait for them")
        fetched = asyncio.get_running_loop().create_future()
        self._waiting.append(fetched)
        await fetched

    async def _keep_fetching(self) -> None:
        while True:
            pause_s = self._fetched + self._pause_s - self._monotonic()
            if pause_s > 0:
                await asyncio.sleep(pause_s)
            if not self.failures:
                try:
                    async with asyncio.timeout(_INTERVAL_S):
                        await self._asked.wait()
                except TimeoutError:
                    pass
            await self._fetch_now()

    async def _fetch_now(self) -> None:
        self._fetched = self._monotonic()
        self._asked.clear()
        # Those who ask from now on want another fetch.
        waiting, self._waiting = self._waiting, []
        refusal: FlussTieringError | None = self._unknown(_STOPPING)
        try:
            self._note(await self._fetch())
            refusal = None
        except Exception as error:  # noqa: BLE001 - nothing may end the fetches
            refusal = self._note_failure(error)
        finally:
            _answer(waiting, refusal)

    def _note(self, found: tuple[SigningKey, ...]) -> None:
        self.failures = 0
        if found != self.present:
            logger.info("keys of the issuer have changed", issuer=self._issuer.url, kids=[key.kid for key in found])
        # Those that stay are the same objects, which are compared faster.
        known = {key: key for key in self.present}
        self.present = tuple(known.get(key, key) for key in found)

    def _note_failure(self, error: Exception) -> FlussTieringError:
        self.failures += 1
        # The 1st, 2nd, 4th, 8th failure and so on.
        if self.failures & (self.failures - 1) == 0:
            logger.error(
                "keys of the issuer cannot be fetched: tokens are checked with those that are known, others are "
                "refused; check oidc-issuer, oidc-jwks-url and the network; the server tries again",
                issuer=self._issuer.url,
                error=error.message if isinstance(error, FlussTieringError) else repr(error),
                keys_known=len(self.present),
                failures_in_a_row=self.failures,
            )
        return self._unknown(_AWAY)

    def _unknown(self, reason: str) -> FlussTieringError:
        return FlussTieringError(
            ErrorCode.UNAVAILABLE,
            f"the server does not know the key of this token, and cannot ask the issuer {self._issuer.url} for it now, "
            f"because {reason}: try again in a few seconds; the server's log says more",
        )


def _read(issuer: Issuer, get_json: GetJson) -> tuple[SigningKey, ...]:
    url = issuer.jwks_url or _jwks_url(issuer, get_json(issuer.configuration_url))
    found = read_key_set(get_json(url))
    if not found:
        raise _wrong(f"{url} has no key for signatures: expected a JSON Web Key Set with RSA, EC or Ed25519 keys")
    return found


def _jwks_url(issuer: Issuer, configuration: dict[str, Any]) -> str:
    """Return where the keys are. The document must be the issuer's own (OpenID Connect Discovery 1.0, section 4.3)."""
    if configuration.get("issuer") != issuer.url:
        raise _wrong(
            f"{issuer.configuration_url} is of the issuer {configuration.get('issuer')!r}: expected {issuer.url!r}, "
            "exactly as oidc-issuer says it"
        )
    try:
        return checked_url(str(configuration.get("jwks_uri")), f"jwks_uri of {issuer.configuration_url}")
    except FlussTieringError as error:
        raise _wrong(error.message) from error


def _wrong(message: str) -> FlussTieringError:
    return FlussTieringError(ErrorCode.UNAVAILABLE, message)


def _answer(waiting: list[asyncio.Future[None]], refusal: FlussTieringError | None) -> None:
    for each in waiting:
        # Calls that were broken off wait no more.
        if not each.done():
            if refusal is None:
                each.set_result(None)
            else:
                each.set_exception(refusal)
