"""The network between clients and server. It delays, loses and repeats requests and answers, also hours later."""

from __future__ import annotations

import random
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from google.protobuf.message import Message

from fluss_tiering.client import TieringClient
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.spark.retry import RetryingClient
from fluss_tiering.wire.errors import error_from_pb, error_to_pb
from simulation.scheduler import Process, Scheduler, SimEvent
from simulation.server import SimServer

_DEADLINE_MS = 30_000
_ATTEMPTS = 5
_LATE_MS = (35_000, 3_600_000)


class Answer:
    """The answer to a waiting client: a response, an error, or that nobody listens."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.arrived = SimEvent(scheduler)
        self.response: Message | None = None
        self.error: FlussTieringError | None = None
        self.refused = False


class Network:
    """Delivers calls to the server, in fibers of the server's process."""

    def __init__(self, scheduler: Scheduler, server: SimServer, chance: random.Random) -> None:
        self._scheduler = scheduler
        self._server = server
        self._chance = chance
        self.faults = 1.0
        self.counters = {"calls": 0, "lost messages": 0, "late messages": 0, "repeated messages": 0}

    def call(self, sender: Process, method: str, request: Message) -> Message:
        """Return the response; raise the server's error, or UNAVAILABLE if no answer came in time."""
        self.counters["calls"] += 1
        deadline = self._scheduler.now + _DEADLINE_MS
        for attempt in range(_ATTEMPTS):
            answer = Answer(self._scheduler)
            self._send(sender, method, request, answer)
            answer.arrived.wait(max(0, deadline - self._scheduler.now) / 1000)
            if answer.error is not None:
                raise answer.error
            if answer.response is not None:
                return answer.response
            if not answer.refused:
                break
            # As the channel's own retries do: on UNAVAILABLE alone.
            self._scheduler.sleep(self._chance.randrange(200 << attempt))
        raise FlussTieringError(ErrorCode.UNAVAILABLE, f"the tiering server did not answer {method}")

    def _happens(self, probability: float) -> bool:
        return self._chance.random() < probability * self.faults

    def _send(self, sender: Process, method: str, request: Message, answer: Answer) -> None:
        if self._happens(0.004):
            self.counters["lost messages"] += 1
            return
        delay = self._delay()
        self._scheduler.after(delay, lambda: self._deliver(sender, method, request, answer))
        if self._happens(0.006):
            self.counters["repeated messages"] += 1
            again = delay + self._chance.choice((0, 5, 1_000, 60_000, 3_600_000))
            self._scheduler.after(again, lambda: self._deliver(sender, method, request, Answer(self._scheduler)))

    def _delay(self) -> int:
        if self._happens(0.004):
            self.counters["late messages"] += 1
            return self._chance.randrange(*_LATE_MS)
        return 1 + int(self._chance.random() ** 3 * 20)

    def _deliver(self, sender: Process, method: str, request: Message, answer: Answer) -> None:
        def refuse() -> None:
            answer.refused = True
            self._scheduler.after(self._delay(), answer.arrived.set)

        def handle() -> None:
            try:
                answer.response = self._server.handle(sender, method, request, refuse)
            except FlussTieringError as error:
                # Across the wire, so that nothing but code and message arrives.
                answer.error = error_from_pb(error_to_pb(error))
            if self._happens(0.004):
                self.counters["lost messages"] += 1
                return
            self._scheduler.after(self._delay(), answer.arrived.set)

        if self._server.process is None:
            refuse()
        else:
            self._scheduler.spawn(self._server.process, handle)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address at which a client of a process reaches the server, instead of "host:port"."""

    network: Network
    process: Process


class SimClient(TieringClient):
    """The real client on the simulated network."""

    def __init__(self, target: Endpoint) -> None:
        self._endpoint = target
        self._stubs: Any = SimpleNamespace(tables=_Names(), leases=_Names(), lake_tiering=_Names())

    def close(self) -> None:
        return

    def _call(self, method: Any, request: Any) -> Any:
        copy = type(request).FromString(request.SerializeToString())
        return self._endpoint.network.call(self._endpoint.process, method, copy)


class SimRetryingClient(RetryingClient, SimClient):
    """The real client of rounds on the simulated network."""


class _Names:
    """Stubs that return the names of their methods."""

    def __getattr__(self, name: str) -> str:
        return name
