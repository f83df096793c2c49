"""Calls that run, and those among them that have to end although nothing moves on them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

import structlog

from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.server.security.authentication import FORWARDED_KEY, Authenticated, refused_token

if TYPE_CHECKING:
    from fluss_tiering.server.rpc.handlers import Context

_LOOK_S: Final = 1.0
_INVALID_S: Final = 2.0
"""How long a client may take an answer whose caller is no longer valid."""
_FORWARDER_S: Final = 10.0
"""How much longer a call may stand still that another server forwards, which ends it by itself before."""

logger = structlog.get_logger(__name__)


class Phase(Enum):
    """What a call waits for."""

    REQUEST = auto()
    """Its one request."""
    WORK = auto()
    """This server, which ends by itself."""
    OTHERS = auto()
    """The next request of a stream, or the next answer of one, for which there may be no reason for long."""
    CLIENT = auto()
    """The client, which has to take an answer."""


class RunningCall:
    """A call that runs.

    Attributes:
        caller: Who makes it.
        phase: What it waits for.
        since: When that began, in seconds of a clock that never goes back.
        is_slow: Whether its request is counted as slow.
        error: What the call is ended with; None if it is not to be ended.
    """

    __slots__ = ("_context", "_task", "caller", "error", "is_slow", "phase", "since")

    def __init__(self, caller: Authenticated, context: Context, task: asyncio.Task[object]) -> None:
        self.caller = caller
        self.phase = Phase.WORK
        self.since = 0.0
        self.is_slow = False
        self.error: FlussTieringError | None = None
        self._context = context
        self._task = task

    @property
    def peer(self) -> str:
        """The address of the connection, as gRPC names it."""
        return self._context.peer() or ""

    @property
    def is_forwarded(self) -> bool:
        """Whether the call says that another server forwards it."""
        return any(key == FORWARDED_KEY for key, _ in self._context.invocation_metadata() or ())

    def waits_for(self, phase: Phase) -> None:
        """Note what the call waits for from now on."""
        self.phase = phase
        self.since = time.monotonic()

    def end(self, error: FlussTieringError) -> None:
        """End the call with an error. Its handler gets a `CancelledError`, which `reason` turns into the error.

        It must not be called while gRPC sends an answer: gRPC would go on with a call that nobody handles.
        """
        if self.error is None:
            self.error = error
            self._task.cancel()

    def reason(self, cancelled: asyncio.CancelledError) -> BaseException:
        """Return why a handler was cancelled: the error, if this server did it."""
        if self.error is None:
            return cancelled
        self._task.uncancel()
        return self.error


class CallWatch:
    """Ends calls whose caller is no longer valid, and those whose client takes nothing. It runs on the event loop.

    gRPC offers no way to end a call whose client takes no answer: the status would wait behind the answer. So the
    connection of such a call is closed.

    Args:
        answer_s: How many seconds a client may take for one message of an answer.
        close_connection: Closes the connection with an address. It is called in a thread.
        look_at_request: Called with a call whose request has not come, and with how many seconds it waits.
    """

    def __init__(
        self,
        answer_s: float,
        close_connection: Callable[[str], object],
        look_at_request: Callable[[RunningCall, float], None],
    ) -> None:
        self._look_at_request = look_at_request
        self._answer_s = answer_s
        self._close_connection = close_connection
        # In the order in which they began: of requests that are slow together, the older ones go on.
        self._running: dict[RunningCall, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, call: RunningCall) -> None:
        """Watch a call from now on."""
        self._running[call] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_LOOK_S, self._look)

    def discard(self, call: RunningCall) -> None:
        """Watch a call no longer, because it has ended."""
        self._running.pop(call, None)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = time.monotonic()
        stuck: set[str] = set()
        for call in self._running:
            if call.phase is Phase.REQUEST:
                self._look_at_request(call, now - call.since)
            elif call.phase is Phase.OTHERS and not call.caller.is_valid():
                call.end(refused_token())
            elif call.phase is Phase.CLIENT and self._is_stuck(call, now - call.since):
                stuck.add(call.peer)
        for peer in stuck:
            logger.info("connection closed: its client does not take its answers", peer=peer)
            loop.run_in_executor(None, self._close_connection, peer)
        self._timer = loop.call_later(_LOOK_S, self._look) if self._running else None

    def _is_stuck(self, call: RunningCall, waited_s: float) -> bool:
        if waited_s <= min(_INVALID_S, self._answer_s):
            return False
        patience_s = self._answer_s
        forwarded = call.is_forwarded
        # A standby server does not know when an executor's token ends, and its connection carries the calls of others.
        judged_here = not forwarded or call.caller.identity.executor_of is None
        if judged_here and not call.caller.is_valid():
            patience_s = min(patience_s, _INVALID_S)
        return waited_s > patience_s + (_FORWARDER_S if forwarded else 0)
