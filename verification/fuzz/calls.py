"""One generated call after the other, and what its answer must be."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError, Message

from fluss_tiering.model.errors import GRPC_STATUS_NAMES, ErrorCode
from fluss_tiering.server.edge.methods import SERVICES
from fuzz.messages import Generator, Memory, parts_of, strings_of
from fuzz.model import Model

_DEADLINE_S: Final = 20.0
_STREAM_S: Final = 0.1
"""A stream may go on for ever: of its answers, those of a moment are looked at."""
_STREAMED: Final = 5
_JUDGED_SHARE: Final = 0.25
"""The share of calls that the model suggests, because it can judge their answers."""
_BAD: Final = frozenset(
    {
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
    }
)
"""What no generated call may be answered with: the failures of a server, or of the way to it."""
_TRACES: Final = ("Traceback (most recent call last)", 'File "')


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came back."""

    status: grpc.StatusCode
    details: str
    trailing: str
    answers: tuple[Message, ...]


class Fuzzer:
    """Calls methods of one server; remembers what it is told."""

    def __init__(self, channel: grpc.Channel, seed: int) -> None:
        self._channel = channel
        self._chance = random.Random(seed)
        self.memory = Memory(self._chance)
        self._generator = Generator(self._chance, self.memory)
        self._methods = [method for service in SERVICES for method in service.methods]
        self.model = Model()
        self.answered: dict[tuple[str, str], int] = {}

    def next_call(self) -> tuple[MethodDescriptor, list[bytes]]:
        """A method and its requests: one, or several where they are a stream."""
        if self._chance.random() < _JUDGED_SHARE:
            suggested = self.model.suggest(self._chance, self.memory.recall)
            if suggested is not None:
                name, request = suggested
                found = next(each for each in self._methods if each.name == name)
                return found, [request.SerializeToString()]
        method = self._chance.choice(self._methods)
        kind = method.input_type
        if self._chance.random() < 0.02:
            # A message of another type, which may well decode.
            kind = self._chance.choice(self._methods).input_type
        count = self._chance.choice((0, 1, 1, 2, 4)) if method.client_streaming else 1
        requests = [self._generator.encoded(kind) for _ in range(count)]
        if method.client_streaming and requests and self._chance.random() < 0.1:
            requests.append(requests[0])
        return method, requests

    def call(self, method: MethodDescriptor, requests: list[bytes]) -> list[str]:
        """Makes the call, now and then twice or without waiting for its end; returns what is wrong with the answer."""
        wrong: list[str] = []
        for _ in range(2 if self._chance.random() < 0.05 else 1):
            # Gone before the answer: the server must not mind.
            patience = 0.002 if self._chance.random() < 0.03 else None
            outcome = outcome_of(self._channel, method, requests, patience)
            key = (method.full_name, "OK" if outcome.answers else outcome.status.name)
            self.answered[key] = self.answered.get(key, 0) + 1
            wrong += self._wrong(method, outcome, patient=patience is None)
            for answer in outcome.answers:
                self.memory.learn(answer)
            wrong += self._judged(method, requests, outcome, patient=patience is None)
        if outcome.status is grpc.StatusCode.OK:
            # What the server took is worth repeating with a change.
            for request in requests:
                self.memory.learn(message_factory.GetMessageClass(method.input_type).FromString(request))
        return wrong

    def _judged(
        self, method: MethodDescriptor, requests: list[bytes], outcome: Outcome, *, patient: bool
    ) -> Iterator[str]:
        """Yield what the model finds wrong with an answer."""
        if method.server_streaming:
            return
        try:
            request = message_factory.GetMessageClass(method.input_type).FromString(requests[0])
        except DecodeError:
            return
        heard = patient and outcome.status not in {grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}
        if not heard:
            self.model.unheard(method.name, request)
        elif outcome.answers:
            yield from self.model.judge(method.name, request, outcome.answers[0])

    def _wrong(self, method: MethodDescriptor, outcome: Outcome, *, patient: bool) -> Iterator[str]:
        ours = {grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}
        if outcome.status in _BAD and not (outcome.status in ours and (not patient or method.server_streaming)):
            yield f"status {outcome.status.name}: {outcome.details}"
        texts = [outcome.details, outcome.trailing, *(text for each in outcome.answers for text in strings_of(each))]
        yield from (f"a traceback: {text}" for text in texts if any(trace in text for trace in _TRACES))
        if "fluss-error-code" not in outcome.trailing and outcome.status not in {grpc.StatusCode.OK, *ours}:
            yield f"status {outcome.status.name} without an error code: {outcome.details}"
        for answer in outcome.answers:
            for error in parts_of(answer, "fluss_tiering.v1.PbError"):
                if GRPC_STATUS_NAMES[ErrorCode(error.code)] in {"INTERNAL", "DATA_LOSS"}:
                    yield f"error {error.code}: {error.message}"


def outcome_of(
    channel: grpc.Channel, method: MethodDescriptor, requests: list[bytes], patience: float | None = None
) -> Outcome:
    """Make a call and return what came back; after `patience` seconds, nobody waits for it any more."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    decode: Any = message_factory.GetMessageClass(method.output_type).FromString
    if not method.server_streaming:
        assert not method.client_streaming, "the API has no such method yet"
        answer, call = None, None
        try:
            timeout = patience or _DEADLINE_S
            answer, call = channel.unary_unary(path, None, decode).with_call(requests[0], timeout=timeout)
        except grpc.RpcError as error:
            call = error
        return _outcome_of(call, [] if answer is None else [answer])
    timeout = patience or (_DEADLINE_S if method.client_streaming else _STREAM_S)
    stream = (
        channel.stream_stream(path, None, decode)(iter(requests), timeout=timeout)
        if method.client_streaming
        else channel.unary_stream(path, None, decode)(requests[0], timeout=timeout)
    )
    answers = list(_first(stream, _STREAMED))
    stream.cancel()
    return _outcome_of(stream, answers)


def _first(stream: Iterable[Message], most: int) -> Iterator[Message]:
    try:
        for number, answer in enumerate(stream, start=1):
            yield answer
            if number == most:
                return
    except grpc.RpcError:
        # Its status stands in the call.
        return


def _outcome_of(call: Any, answers: list[Message]) -> Outcome:
    return Outcome(call.code(), call.details() or "", str(call.trailing_metadata() or ""), tuple(answers))
