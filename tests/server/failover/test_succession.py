"""The course of a server, on a clock that is turned by hand: when it looks, when it renews, and what ends it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fluss_tiering.model.errors import DataDirInUseError, ErrorCode, FlussTieringError
from fluss_tiering.server.failover.election import Leader
from fluss_tiering.server.failover.leadership import Leadership
from fluss_tiering.server.failover.succession import Succession
from waiting import WAIT_S

LEASE_S = 8.0
OTHER = Leader(1, "other", "other:1")


class Clock:
    """A monotonic clock that pauses turn, and the limits of calls that get no answer."""

    def __init__(self) -> None:
        self.now = 100.0
        self.pauses: list[float] = []
        self.limits: list[float] = []
        self.suspended_s = 0.0
        self.silent = False

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds + self.suspended_s
        self.suspended_s = 0.0

    @asynccontextmanager
    async def timeout(self, seconds: float) -> AsyncIterator[None]:
        self.limits.append(seconds)
        if not self.silent:
            yield
            return
        try:
            async with _timeout(0.01):
                yield
        finally:
            self.now += seconds


_timeout = asyncio.timeout


class Row:
    """The leader's row, of which each call has the next answer of its list."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.calls: list[str] = []
        self.answers: dict[str, list[Any]] = {}
        self.released = threading.Event()
        self.takes_s = 0.0

    def prepare(self) -> None:
        self._answer("prepare")

    def leader(self) -> Leader | None:
        return self._answer("leader")

    def acquire(self) -> int | None:
        return self._answer("acquire")

    def renew(self, generation: int) -> int | None:
        assert generation == 3
        return self._answer("renew")

    def resign(self, generation: int) -> None:
        assert generation == 3
        self._answer("resign")

    def close(self) -> None:
        self._answer("close")

    def _answer(self, call: str) -> Any:
        self.calls.append(call)
        if self.clock.silent:
            assert self.released.wait(WAIT_S)
        self.clock.now += self.takes_s
        answer = self.answers[call].pop(0) if call in self.answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer


class Server:
    """A server's succession, with what it was told."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.row = Row(self.clock)
        self.leadership = Leadership(self.row, LEASE_S, self.clock)
        self.succession = Succession(self.row, self.leadership, LEASE_S, "own:1")  # type: ignore[arg-type]
        self.tried: list[FlussTieringError | None] = []
        self.suspended_when_told_s = 0.0

    def lead(self, *renewals: int | Exception | None) -> None:
        """Take over, and let the renewals have these answers."""
        self.row.answers = {"acquire": [3], "renew": list(renewals)}
        assert self.leadership.acquire()

    async def keep(self) -> None:
        await self.succession.keep_leadership(self._told)

    async def _told(self, problem: FlussTieringError | None) -> None:
        self.tried.append(problem)
        self.clock.now += self.suspended_when_told_s
        self.suspended_when_told_s = 0.0


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    one = Server()
    monkeypatch.setattr(asyncio, "sleep", one.clock.sleep)
    monkeypatch.setattr(asyncio, "timeout", one.clock.timeout)
    yield one
    one.row.released.set()


def unavailable(message: str = "away") -> FlussTieringError:
    return FlussTieringError(ErrorCode.UNAVAILABLE, message)


async def test_a_waiting_server_looks_eight_times_a_lease(server: Server) -> None:
    problem = unavailable()
    server.row.answers = {"leader": [OTHER, problem, None, None], "acquire": [None, 3]}
    seen: list[tuple[Leader | None, FlussTieringError | None]] = []

    async def look(leader: Leader | None, error: FlussTieringError | None) -> None:
        seen.append((leader, error))

    await server.succession.prepare()
    await server.succession.wait_for_leadership(look)
    assert seen == [(OTHER, None), (None, problem), (None, None)]
    assert server.row.calls == ["prepare", "leader", "leader", "leader", "acquire", "leader", "acquire"]
    assert server.clock.pauses == [1.0] * 3
    assert server.leadership.generation == 3


async def test_a_server_looks_more_often_while_the_leader_has_its_own_address(server: Server) -> None:
    former = Leader(1, "former", "own:1")
    server.row.answers = {"leader": [former, former, OTHER, None], "acquire": [3]}

    async def look(leader: Leader | None, error: FlussTieringError | None) -> None:
        del leader, error

    await server.succession.wait_for_leadership(look)
    assert server.clock.pauses == [0.25, 0.25, 1.0]


async def test_a_leadership_is_renewed_four_times_a_lease_until_another_server_takes_over(
    server: Server,
) -> None:
    server.lead(0, 0, 0, None)
    with pytest.raises(FlussTieringError, match="another server took over") as lost:
        await server.keep()
    assert lost.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert server.clock.pauses == [2.0] * 4
    assert server.clock.limits == [6.0] * 4
    assert server.tried == [None] * 3
    assert not server.leadership.was_given_up


@pytest.mark.parametrize("takes_s", [0.0, 1.5])
async def test_a_leadership_lapses_when_its_renewals_fail_for_the_time_of_a_lease(
    server: Server, takes_s: float
) -> None:
    problems = [unavailable(str(number)) for number in range(9)]
    server.lead(*problems)
    server.row.takes_s = takes_s
    await server.keep()
    tries = 2 if takes_s else 3
    assert server.tried == problems[:tries]
    assert server.clock.limits == ([6.0, 2.5] if takes_s else [6.0, 4.0, 2.0])
    # The last pause ends with the leadership.
    assert server.clock.pauses == ([2.0, 2.0, 1.0] if takes_s else [2.0] * 4)
    assert server.leadership.was_given_up
    with pytest.raises(FlussTieringError) as refused:
        server.leadership.require()
    assert refused.value.message.startswith("this server could not renew its leadership for 8 s")
    assert refused.value.message.count("try again") == 1


async def test_a_leadership_goes_on_after_a_renewal_that_failed(server: Server) -> None:
    problem = unavailable()
    server.lead(problem, problem, 0, problem, None)
    with pytest.raises(FlussTieringError, match="another server took over"):
        await server.keep()
    assert server.tried == [problem, problem, None, problem]


@pytest.mark.parametrize("when", ["while it pauses", "while it tells of a try"])
async def test_a_server_that_was_suspended_tries_to_renew_its_leadership_first(server: Server, when: str) -> None:
    server.lead(0, 0, None)
    if when == "while it pauses":
        server.clock.suspended_s = 60
    else:
        server.suspended_when_told_s = 60
    with pytest.raises(FlussTieringError, match="another server took over"):
        await server.keep()
    assert server.tried == [None, None]
    # The leadership has no time left, so that the try has a time of its own.
    assert server.clock.limits == ([2.0, 6.0, 6.0] if when == "while it pauses" else [6.0, 2.0, 6.0])
    assert server.clock.pauses == ([2.0, 2.0, 2.0] if when == "while it pauses" else [2.0, 0.0, 2.0])


async def test_a_database_that_does_not_answer_ends_a_leadership_in_time(server: Server) -> None:
    server.lead()
    server.clock.silent = True
    await server.keep()
    assert server.clock.now == 100 + LEASE_S
    assert server.clock.limits == [6.0]
    (problem,) = server.tried
    assert problem is not None
    assert server.leadership.was_given_up


async def test_a_leadership_that_was_given_up_during_a_renewal_ends_without_an_error(server: Server) -> None:
    server.lead(4)
    server.leadership.tokens.begin(5)
    server.leadership.tokens.committed(5)
    await server.keep()
    assert server.leadership.was_given_up
    assert server.tried == []
    assert server.row.calls == ["acquire", "renew"]


async def test_no_call_of_the_server_delays_a_renewal(server: Server) -> None:
    calls, ended = ThreadPoolExecutor(1), threading.Event()
    asyncio.get_running_loop().set_default_executor(calls)
    calls.submit(ended.wait, WAIT_S)
    server.lead(0, None)
    try:
        with pytest.raises(FlussTieringError, match="another server took over"):
            await asyncio.wait_for(server.keep(), WAIT_S / 4)
    finally:
        ended.set()


async def test_a_server_opens_its_components_once_the_data_folder_is_free(server: Server) -> None:
    held = [DataDirInUseError(f"held by {each}") for each in (7, 7, 8)]
    waits: list[str] = []

    async def open_components() -> str:
        if held:
            raise held.pop(0)
        return "opened"

    assert await server.succession.take_over(open_components, waits.append) == "opened"
    ends = "which ends once it finds that it leads no more"
    assert waits == [f"held by 7, {ends}", f"held by 8, {ends}"]
    assert server.clock.pauses == [0.5] * 3


async def test_other_errors_of_the_components_end_a_take_over(server: Server) -> None:
    async def open_components() -> None:
        raise FlussTieringError(ErrorCode.CORRUPT_DATA, "unreadable")

    def waits(reason: str) -> None:
        pytest.fail(reason)

    with pytest.raises(FlussTieringError, match="unreadable"):
        await server.succession.take_over(open_components, waits)


@pytest.mark.parametrize("database", ["answers", "refuses", "is silent"])
async def test_who_resigns_waits_a_second_for_the_database(server: Server, database: str) -> None:
    server.lead()
    if database == "refuses":
        server.row.answers["resign"] = [unavailable()]
    server.clock.silent = database == "is silent"
    await server.succession.resign()
    assert server.row.calls == ["acquire", "resign"]
    assert server.clock.limits == [1.0]
    assert server.leadership.generation is None


async def test_a_server_that_closes_resigns_before_it_lets_go_of_the_database(server: Server) -> None:
    server.lead()
    await server.succession.close()
    assert server.row.calls == ["acquire", "resign", "close"]


async def test_the_row_is_asked_one_thing_at_a_time(server: Server) -> None:
    server.lead()
    server.clock.silent = True
    await server.keep()
    closing = asyncio.ensure_future(server.succession.close())
    while server.clock.now < 100 + LEASE_S + 1:
        # To resign was given up after a second.
        await asyncio.wait([closing], timeout=0.01)
    assert server.row.calls == ["acquire", "renew"], "the renewal has no answer yet"
    server.clock.silent = False
    server.row.released.set()
    await closing
    assert server.row.calls == ["acquire", "renew", "close"]
