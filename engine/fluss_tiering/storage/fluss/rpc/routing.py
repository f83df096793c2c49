"""Which server of a cluster a call goes to, and how long a try may take.

There is no I/O here.
"""

from __future__ import annotations

import random
import time
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar

from fluss_tiering.model.errors import FlussTieringError
from fluss_tiering.model.table import TableBucket, TablePath
from fluss_tiering.storage.fluss.rpc.acls import MissingAcl, ResourceType
from fluss_tiering.storage.fluss.rpc.call import BucketLeader, Call, ServerAddress, ServerKind
from fluss_tiering.storage.fluss.rpc.calls.cluster import ClusterMetadata, metadata
from fluss_tiering.storage.fluss.rpc.errors import (
    STALE_METADATA,
    FlussConnectionError,
    FlussError,
    FlussServerError,
    UnknownBucketError,
)

ResultT = TypeVar("ResultT")

_MAX_LEADERS: Final = 100_000
"""When more leaders are known, all are forgotten and asked for again, since dropped tables are among them."""
_MAX_CONNECT_S: Final = 10.0
_TRIES: Final = 3
"""The time of a call is divided by this number of tries, so that a server that hangs is left for another one."""
_LAST_TRY_S: Final = 0.05
"""The least time that a try gets, even when the deadline has passed."""


@dataclass(frozen=True, slots=True)
class RoutedCall:
    """A call and the address of the server that it goes to."""

    address: ServerAddress
    call: Call[Any, Any]


class Router:
    """Chooses the server for each call by the cluster's metadata as they were last read.

    A race between threads costs one more metadata call at worst.
    """

    def __init__(self, bootstrap: Sequence[ServerAddress]) -> None:
        """Begin with the addresses of any servers of the cluster."""
        self._bootstrap = tuple(bootstrap)
        self._coordinator: ServerAddress | None = None
        self._tablet_servers: dict[int, ServerAddress] = {}
        self._leaders: dict[TableBucket, int] = {}
        # Servers whose last call failed. They are asked after the others, since the metadata name a dead server until
        # its session ends.
        self._suspects: set[ServerAddress] = set()

    def steps(self, call: Call[Any, ResultT]) -> Generator[RoutedCall, Any, ResultT]:
        """Yield the calls to send and return the result of the wanted one.

        The caller sends each call that is yielded and sends its result back in, or throws its error in. A server that
        proves to be the wrong one, or is gone, is forgotten; the next try then asks for metadata first.
        """
        address = self._address(call)
        if address is None or (call.destination is ServerKind.ANY and address in self._suspects):
            yield from self._ask_for_metadata(call)
            address = self._address(call)
        if address is None:
            raise _nobody(call)
        try:
            result: ResultT = yield from self._ask(address, call)
        except FlussConnectionError:
            self._forget(call)
            raise
        except FlussServerError as error:
            if error.fluss_error in STALE_METADATA or error.not_ready:
                self._forget(call)
            raise
        return result

    def _ask(self, address: ServerAddress, call: Call[Any, ResultT]) -> Generator[RoutedCall, Any, ResultT]:
        try:
            result: ResultT = yield RoutedCall(address, call)
        except FlussConnectionError:
            self._suspects.add(address)
            raise
        self._suspects.discard(address)
        return result

    def _address(self, call: Call[Any, Any]) -> ServerAddress | None:
        match call.destination:
            case ServerKind.COORDINATOR:
                return self._coordinator
            case ServerKind.ANY:
                return next(iter(self._by_trust(self._tablet_servers.values())), None)
            case BucketLeader(bucket=bucket):
                return self._tablet_servers.get(self._leaders.get(bucket, -1))

    def _by_trust(self, addresses: Iterable[ServerAddress]) -> list[ServerAddress]:
        shuffled = list(addresses)
        random.shuffle(shuffled)
        return sorted(shuffled, key=lambda address: address in self._suspects)

    def _ask_for_metadata(self, call: Call[Any, Any]) -> Generator[RoutedCall, Any, None]:
        question = metadata()
        if isinstance(call.destination, BucketLeader):
            partition_id = call.destination.bucket.partition_id
            question = metadata([call.destination.path], () if partition_id is None else [partition_id])
        failure: FlussTieringError = _nobody(call)
        for address in self._by_trust({*self._tablet_servers.values(), *self._bootstrap}):
            try:
                answer = yield from self._ask(address, question)
            except FlussConnectionError as error:
                failure = error
                continue
            except FlussServerError as error:
                if not error.not_ready:
                    raise
                failure = error
                continue
            self._learn(answer)
            if isinstance(call.destination, BucketLeader):
                _check_exists(call.destination, answer)
                if answer.leaders.get(call.destination.bucket) is None:
                    yield from self._ask_coordinator(question)
            return
        raise failure

    def _ask_coordinator(self, question: Call[Any, ClusterMetadata]) -> Generator[RoutedCall, Any, None]:
        """Ask the coordinator, which elects the leaders.

        A tablet server of Fluss 0.9.1 that is asked during an election may say for a long time that there is no leader.
        """
        if self._coordinator is None or self._coordinator in self._suspects:
            return
        try:
            answer = yield from self._ask(self._coordinator, question)
        except (FlussConnectionError, FlussServerError):
            return
        self._learn(answer)

    def _learn(self, answer: ClusterMetadata) -> None:
        self._coordinator = answer.coordinator
        self._tablet_servers = dict(answer.tablet_servers)
        if len(self._leaders) > _MAX_LEADERS:
            self._leaders = {}
        self._leaders.update({bucket: led_by for bucket, led_by in answer.leaders.items() if led_by is not None})

    def _forget(self, call: Call[Any, Any]) -> None:
        if isinstance(call.destination, BucketLeader):
            self._leaders.pop(call.destination.bucket, None)
        elif call.destination is ServerKind.COORDINATOR:
            self._coordinator = None


def may_repeat(call: Call[Any, Any], error: BaseException) -> bool:
    """Return whether a failed call may be sent again: the failure may pass, and its work is not done twice."""
    if isinstance(error, FlussServerError):
        return error.transient and (call.repeatable or not error.outcome_unknown)
    return isinstance(error, FlussConnectionError) and (call.repeatable or not error.outcome_unknown)


def _check_exists(wanted: BucketLeader, answer: ClusterMetadata) -> None:
    """Refuse a bucket that the cluster does not know, or hides from the user, instead of waiting for its leader."""
    if wanted.path in answer.hidden:
        raise FlussServerError(
            FlussError.AUTHORIZATION_EXCEPTION,
            f"the metadata of {wanted.path} are left out",
            str(wanted.bucket),
            MissingAcl("DESCRIBE", ResourceType.TABLE, str(wanted.path)),
        )
    if wanted.bucket in answer.leaders or not answer.leaders:
        return
    table_ids = {each.table_id for each in answer.leaders}
    if wanted.bucket.table_id not in table_ids:
        raise FlussServerError(
            FlussError.TABLE_NOT_EXIST, f"{wanted.path} is table {min(table_ids)} now", str(wanted.bucket)
        )
    raise UnknownBucketError(f"{wanted.path} has no {wanted.bucket}: expected one of its {len(answer.leaders)} buckets")


def without_leader(path: TablePath, bucket: TableBucket) -> FlussServerError:
    """Return the error that says that a bucket of a table has no leader."""
    return FlussServerError(
        FlussError.LEADER_NOT_AVAILABLE_EXCEPTION, "no tablet server that is alive leads it", f"{bucket} ({path})"
    )


def _nobody(call: Call[Any, Any]) -> FlussServerError:
    match call.destination:
        case ServerKind.COORDINATOR:
            what, why = "", "the cluster has no coordinator now"
        case ServerKind.ANY:
            what, why = "", "the cluster has no tablet server that is alive"
        case BucketLeader(path=path, bucket=bucket):
            return without_leader(path, bucket)
    return FlussServerError(FlussError.LEADER_NOT_AVAILABLE_EXCEPTION, why, what)


@dataclass(frozen=True, slots=True)
class Deadline:
    """The time by which one call must be answered.

    Attributes:
        seconds: The time that the call may take in all.
        at: The deadline on the monotonic clock.
    """

    seconds: float
    at: float

    @classmethod
    def of(cls, seconds: float) -> Self:
        """Return the deadline that is this many seconds from now."""
        return cls(seconds, time.monotonic() + seconds)

    def connect_timeout(self) -> float:
        """Return how many seconds connecting and the handshake may take."""
        return min(self._left(), _MAX_CONNECT_S, self.seconds / _TRIES)

    def try_timeout(self, call: Call[Any, Any]) -> float:
        """Return how many seconds one try of a call may take.

        A call that must not be repeated has one try, which gets all the time that is left.
        """
        return min(self._left(), self.seconds / _TRIES) if call.repeatable else self._left()

    def _left(self) -> float:
        return max(self.at - time.monotonic(), _LAST_TRY_S)
