"""How many calls a caller may make: so many in a second, and so many at once."""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import structlog

from fluss_tiering.model.errors import ThrottledError
from fluss_tiering.server.security.identity import ANYBODY, Identity

UNKNOWN_CALLS_PER_S: Final = 20
"""The number of calls without valid credentials from one address that are told so. Further ones are only refused."""
UNKNOWN_BURST: Final = 100

WORK_BYTES_PER_S: Final = 16 << 20
"""The bytes of answers of lists to one identity in a second. A byte of a request counts as several."""
WORK_BURST_BYTES: Final = 64 << 20
_MAX_WRITES: Final = 32
"""The number of streams of one identity that write rows, each of which may hold a request of the largest size."""

_BURST_PART: Final = 5
_MIN_BURST: Final = 10

_MAX_KEYS: Final = 10_000
_BUSY_RETRY_MS: Final = 500
_LOG_INTERVAL_S: Final = 60.0

logger = structlog.get_logger(__name__)


class Rate:
    """Limits how often things happen, by key, with a token bucket for each. It is used on the event loop only.

    Args:
        per_second: How often they may happen in a second.
        burst: How often they may happen at once.
        monotonic: A clock in seconds that never goes back.
    """

    def __init__(self, per_second: float, burst: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._burst = max(1.0, burst)
        self._monotonic = monotonic
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, key: str) -> float:
        """Count that it happens, and return 0; or return how many seconds to wait until it may."""
        level = self._level(key)
        allowed = level >= 1
        self._keep(key, level - 1 if allowed else level)
        return 0.0 if allowed else (1 - level) / self._per_second

    def owes_s(self, key: str) -> float:
        """Return how many seconds to wait until what was spent is paid back; 0 if nothing is owed."""
        return max(0.0, -self._level(key) / self._per_second)

    def spend(self, key: str, amount: float) -> None:
        """Count something of an amount that was known only when it had happened. The key may owe some then."""
        self._keep(key, self._level(key) - amount)

    def _level(self, key: str) -> float:
        now = self._monotonic()
        level, at = self._levels.get(key, (self._burst, now))
        return min(self._burst, level + (now - at) * self._per_second)

    def _keep(self, key: str, level: float) -> None:
        self._levels[key] = (level, self._monotonic())
        # The key that has been quiet for longest is forgotten first. It may then begin with a whole burst again.
        self._levels.move_to_end(key)
        if len(self._levels) > _MAX_KEYS:
            self._levels.popitem(last=False)


class CallRates:
    """Refuses the calls of callers who make too many. It is used on the event loop only.

    Nobody is limited on a server that does not ask callers who they are, because they all would be one caller.

    Args:
        calls_per_second: The number of calls that an identity may make in a second, and a fifth of them at once.
        concurrent_calls: The number of calls of an identity that are answered at once, streams included.
        monotonic: A clock in seconds that never goes back.
    """

    def __init__(
        self, calls_per_second: int, concurrent_calls: int, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._calls_per_second = calls_per_second
        self._concurrent_calls = concurrent_calls
        self._monotonic = monotonic
        self._known = Rate(calls_per_second, max(_MIN_BURST, calls_per_second / _BURST_PART), monotonic)
        self._unknown = Rate(UNKNOWN_CALLS_PER_S, UNKNOWN_BURST, monotonic)
        self._work = Rate(WORK_BYTES_PER_S, WORK_BURST_BYTES, monotonic)
        self._running: Counter[str] = Counter()
        self._writes: Counter[str] = Counter()
        self._refused = 0
        self._logged_at: float | None = None

    def check(self, identity: Identity) -> None:
        """Count a call of an identity.

        Raises:
            ThrottledError: The identity has made too many calls.
        """
        if identity is ANYBODY:
            return
        if wait_s := self._known.wait_s(identity.counted_as):
            raise self._refusal(
                identity.name,
                f"{identity.counted_as} makes more than {self._calls_per_second} calls in a second, and "
                "max-calls-per-second-per-identity allows no more: try again later",
                wait_s,
            )

    def check_unknown(self, host: str) -> None:
        """Count a call without valid credentials.

        Args:
            host: The machine that it came from.

        Raises:
            ThrottledError: There were too many such calls from the machine.
        """
        if wait_s := self._unknown.wait_s(host):
            raise self._refusal(
                host, "too many calls without valid credentials come from this address: try again later", wait_s
            )

    def check_work(self, identity: Identity) -> None:
        """Check that an identity has not let the server do too much work just now.

        Raises:
            ThrottledError: It has.
        """
        if identity is not ANYBODY and (wait_s := self._work.owes_s(identity.counted_as)):
            raise self._refusal(
                identity.name,
                f"{identity.name} sends or asks for too much at once: lists of many MiB in a second; try again later",
                wait_s,
            )

    def spend(self, identity: Identity, size: int) -> None:
        """Count the bytes of a request or of an answer."""
        if identity is not ANYBODY:
            self._work.spend(identity.counted_as, size)

    def begin(self, identity: Identity) -> None:
        """Count a call that begins.

        Raises:
            ThrottledError: As many calls of the identity are answered already as may be.
        """
        self._begin(
            self._running,
            identity,
            self._concurrent_calls,
            "the server answers {} calls of {}, and max-concurrent-calls-per-identity allows no more: try again later",
        )

    def end(self, identity: Identity) -> None:
        """Count a call no longer."""
        _end(self._running, identity)

    @contextmanager
    def counted_writes(self, identity: Identity) -> Iterator[None]:
        """Count a stream that writes rows as long as the block runs.

        Raises:
            ThrottledError: As many streams of the identity write already as may.
        """
        self._begin(
            self._writes, identity, _MAX_WRITES, "{} streams of {} write rows, and no more may: try again later"
        )
        try:
            yield
        finally:
            _end(self._writes, identity)

    def _begin(self, counts: Counter[str], identity: Identity, most: int, refusal: str) -> None:
        if identity is ANYBODY:
            return
        name = identity.counted_as
        if counts[name] >= most:
            raise self._refusal(name, refusal.format(counts[name], name), _BUSY_RETRY_MS / 1000)
        counts[name] += 1

    def _refusal(self, who: str, message: str, wait_s: float) -> ThrottledError:
        # One line for each refusal would be a way to fill the disk.
        now = self._monotonic()
        self._refused += 1
        if self._logged_at is None or now - self._logged_at >= _LOG_INTERVAL_S:
            logger.warning("calls refused: too many", latest=who, refused=self._refused)
            self._logged_at, self._refused = now, 0
        return ThrottledError(message, max(1, round(wait_s * 1000)))


def _end(counts: Counter[str], identity: Identity) -> None:
    if identity is not ANYBODY:
        name = identity.counted_as
        counts[name] -= 1
        if not counts[name]:
            del counts[name]
