"""Limits of calls: nothing of a request is read before its caller is known and counted.

gRPC reads the request of a method with one request before it calls the handler. Nobody could then fill the memory with
requests that are never finished. So each method is answered as one with a stream of requests, which is read when the
handler asks for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import grpc

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.rpc.limits.answers import UntakenAnswers
from fluss_tiering.server.rpc.limits.reading import RequestReads
from fluss_tiering.server.rpc.limits.running import CallWatch, Phase, RunningCall
from fluss_tiering.server.rpc.limits.sizes import BULK, CONTROL, LARGE_ANSWERS, STREAMED_REQUESTS, RequestSizes
from fluss_tiering.server.security.authentication import authenticated
from fluss_tiering.server.security.identity import ANYBODY, Identity
from fluss_tiering.server.security.rates import CallRates

if TYPE_CHECKING:
    from fluss_tiering.server.rpc.handlers import Behaviour, Context, Handler

_RESERVED_PART: Final = 10
"""One call of so many is left for control calls."""
_BULK_BYTES: Final = 4 << 20
"""What the stream of a table's rows holds while its client takes nothing: a chunk of 1 MiB, and copies of it."""
_LARGE_ANSWER_BYTES: Final = 8 << 20
"""What is counted for a large answer until its size is known."""


@dataclass(frozen=True, slots=True)
class CallLimits:
    """The limits of calls, which an operator sets.

    Attributes:
        request_bytes: The largest size of a request without rows. Most requests may have less.
        message_bytes: The largest size of a request with rows.
        concurrent_calls: The largest number of calls that are answered at once, streams included.
        untaken_bytes: The largest size of all answers together that clients have not taken yet.
        untaken_bytes_of_one: The same for one caller.
        answer_s: How many seconds a client may take for one message of an answer.
    """

    request_bytes: int
    message_bytes: int
    concurrent_calls: int
    untaken_bytes: int
    untaken_bytes_of_one: int
    answer_s: float


class LimitedCalls:
    """Refuses calls that are beyond the limits, and ends those that nobody takes. It is used on the event loop only.

    Args:
        limits: The limits.
        rates: Counts the calls of each caller.
        close_connection: Closes the connection with an address. It is called in a thread.
    """

    def __init__(self, limits: CallLimits, rates: CallRates, close_connection: Callable[[str], object]) -> None:
        self._limits = limits
        self._rates = rates
        self._sizes = RequestSizes(limits.request_bytes, limits.message_bytes)
        self._reads = RequestReads(self._sizes, rates)
        # Two, so that the streams of a caller who reads much do not keep it from calls with one answer.
        sizes = limits.untaken_bytes_of_one, limits.untaken_bytes, limits.answer_s
        self._streams, self._answers = UntakenAnswers(*sizes), UntakenAnswers(*sizes)
        self._watch = CallWatch(limits.answer_s, close_connection, self._reads.look)
        self._running = 0

    def wrap(self, handler: Handler, method: str) -> Handler:
        """Return a handler of serialized requests that refuses what is beyond the limits.

        Args:
            handler: A handler of serialized requests, of one or of a stream.
            method: The path of the method. It takes one request, unless its proto says otherwise.
        """
        serialize = handler.response_serializer or _unchanged
        if handler.response_streaming:
            behaviour: Any = handler.stream_stream if handler.request_streaming else handler.unary_stream
            if method not in STREAMED_REQUESTS:
                of_one = self._of_one(behaviour, method, as_stream=handler.request_streaming)
                return grpc.stream_stream_rpc_method_handler(self._streaming(of_one, method, serialize))
            # Its answers are small. The audit log reads them.
            of_many = self._streaming(self._of_many(behaviour, method), method, None)
            return grpc.stream_stream_rpc_method_handler(of_many, None, handler.response_serializer)
        unary = cast("Behaviour", handler.unary_unary)
        return grpc.stream_unary_rpc_method_handler(self._unary(unary, method, serialize))

    def _unary(self, behaviour: Behaviour, method: str, serialize: Callable[[Any], bytes]) -> Behaviour:
        async def handle(messages: AsyncIterator[bytes], context: Context) -> bytes:
            del messages  # the context reads them with fewer steps
            call, name, ends = self._begin(method, context)
            message = await self._reads.one(context.read(), method, call)
            if method in LARGE_ANSWERS:
                counted = _Counted(self._answers, name)
                await counted.reserve(_LARGE_ANSWER_BYTES)
                ends.append(counted.end)
                answer = serialize(await cast("Awaitable[object]", behaviour(message, context)))
                counted.change(len(answer))
                self._rates.spend(call.caller.identity, len(answer))
            else:
                answer = serialize(await cast("Awaitable[object]", behaviour(message, context)))
            call.waits_for(Phase.CLIENT)
            return answer

        return handle

    def _streaming(
        self, behaviour: Callable[..., Any], method: str, serialize: Callable[[Any], bytes] | None
    ) -> Behaviour:
        reserved = _BULK_BYTES if method in BULK else 0

        async def handle(messages: AsyncIterator[bytes], context: Context) -> AsyncIterator[object]:
            call, name, ends = self._begin(method, context)
            counted = _Counted(self._streams, name)
            ends.append(counted.end)
            try:
                await counted.reserve(reserved)
                call.waits_for(Phase.OTHERS)
                async for response in behaviour(messages, context, call):
                    answer = response
                    if serialize is not None:
                        answer = serialize(response)
                        counted.change(max(reserved, len(answer)))
                    del response
                    call.waits_for(Phase.CLIENT)
                    yield answer
                    call.waits_for(Phase.OTHERS)
                    counted.change(0)
                    await counted.reserve(reserved)
            except asyncio.CancelledError as cancelled:
                raise call.reason(cancelled) from None

        return handle

    def _of_one(self, behaviour: Behaviour, method: str, *, as_stream: bool) -> Callable[..., AsyncIterator[object]]:
        async def handle(messages: AsyncIterator[bytes], context: Context, call: RunningCall) -> AsyncIterator[object]:
            message = await self._reads.one(anext(aiter(messages), None), method, call)
            call.waits_for(Phase.OTHERS)
            async for response in behaviour(_only(message) if as_stream else message, context):
                yield response

        return handle

    def _of_many(self, behaviour: Behaviour, method: str) -> Callable[..., AsyncIterator[object]]:
        def handle(messages: AsyncIterator[bytes], context: Context, call: RunningCall) -> AsyncIterator[object]:
            responses: AsyncIterator[object] = behaviour(self._checked(messages, method, call), context)
            return responses

        return handle

    async def _checked(self, messages: AsyncIterator[bytes], method: str, call: RunningCall) -> AsyncIterator[bytes]:
        with self._rates.counted_writes(call.caller.identity):
            async for message in messages:
                self._sizes.check(message, method)
                yield message

    def _begin(self, method: str, context: Context) -> tuple[RunningCall, str | None, list[Callable[[], None]]]:
        """Count a call until it has ended, which is after its client has taken the answer.

        Returns:
            The call; the name under which its caller is counted; what is called when it has ended.
        """
        caller = authenticated()
        identity = caller.identity
        most = self._limits.concurrent_calls
        if method not in CONTROL:
            most -= most // _RESERVED_PART
            self._rates.check_work(identity)
        if self._running >= most:
            raise FlussTieringError(
                ErrorCode.UNAVAILABLE,
                f"the server answers {self._running} calls, and max-concurrent-calls allows no more: try again later",
            )
        task = asyncio.current_task()
        assert task is not None, "gRPC answers each call in a task"  # noqa: S101 - for the type checker
        self._rates.begin(identity)
        self._running += 1
        call = RunningCall(caller, context, task)
        self._watch.add(call)
        ends: list[Callable[[], None]] = []

        def ended(_: object) -> None:
            self._running -= 1
            self._rates.end(identity)
            self._watch.discard(call)
            for each in ends:
                each()

        task.add_done_callback(ended)
        return call, _name_for_limits(identity), ends


class _Counted:
    """Bytes that are counted for a call."""

    def __init__(self, answers: UntakenAnswers, name: str | None) -> None:
        self._answers = answers
        self._name = name
        self._size = 0

    def end(self) -> None:
        """Count none any more."""
        self.change(0)

    async def reserve(self, size: int) -> None:
        """Wait until there is room for the bytes, and count them."""
        if size:
            await self._answers.reserve(self._name, size)
            self._size += size

    def change(self, size: int) -> None:
        """Count this many bytes from now on."""
        if size != self._size:
            self._answers.count(self._name, size - self._size)
            self._size = size


async def _only(message: bytes) -> AsyncIterator[bytes]:
    yield message


def _unchanged(response: bytes) -> bytes:
    return response


def _name_for_limits(identity: Identity) -> str | None:
    return None if identity is ANYBODY else identity.counted_as
