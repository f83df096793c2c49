"""What is known of a cluster, and which server a call goes to; no I/O, for both clients."""

from __future__ import annotations

import random
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket
from fluss_tiering.storage.fluss.address import ServerAddress
from fluss_tiering.storage.fluss.call import Call, Leader, Role
from fluss_tiering.storage.fluss.calls.metadata import ClusterMetadata, metadata
from fluss_tiering.storage.fluss.errors import (
    STALE_METADATA,
    FlussConnectionError,
    FlussError,
    FlussServerError,
)

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class Sent:
    """A call on its way to a server."""

    address: ServerAddress
    call: Call[Any, Any]


class Cluster:
    """The servers and leaders as they were last heard of. Races between threads cost a metadata call at worst."""

    def __init__(self, bootstrap: Sequence[ServerAddress]) -> None:
        """Knows the addresses to begin with, of any servers of the cluster."""
        self._bootstrap = tuple(bootstrap)
        self._coordinator: ServerAddress | None = None
        self._tablet_servers: dict[int, ServerAddress] = {}
        self._leaders: dict[TableBucket, int] = {}

    def steps(self, call: Call[Any, ResultT]) -> Generator[Sent, Any, ResultT]:
        """Yields what to send, takes the results or has their errors thrown in, and returns the call's result.

        A server that turns out to be the wrong one, or gone, is forgotten: the next try asks for metadata first.
        """
        address = self._address(call)
        if address is None:
            yield from self._ask_for_metadata(call)
            address = self._address(call)
        if address is None:
            raise _nobody(call)
        try:
            result: ResultT = yield Sent(address, call)
        except FlussConnectionError:
            self._forget(call, address)
            raise
        except FlussServerError as error:
            if error.fluss_error in STALE_METADATA or error.not_ready:
                self._forget(call, address)
            raise
        return result

    def _address(self, call: Call[Any, Any]) -> ServerAddress | None:
        match call.destination:
            case Role.COORDINATOR:
                return self._coordinator
            case Role.ANY:
                servers = list(self._tablet_servers.values())
                return random.choice(servers) if servers else None  # noqa: S311 - spreads the load
            case Leader(bucket=bucket):
                return self._tablet_servers.get(self._leaders.get(bucket, -1))

    def _ask_for_metadata(self, call: Call[Any, Any]) -> Generator[Sent, Any, None]:
        question = metadata()
        if isinstance(call.destination, Leader):
            partition_id = call.destination.bucket.partition_id
            question = metadata([call.destination.path], () if partition_id is None else [partition_id])
        failure: FlussTieringError = _nobody(call)
        for address in self._sources():
            try:
                answer: ClusterMetadata = yield Sent(address, question)
            except FlussConnectionError as error:
                failure = error
                self._tablet_servers = {n: known for n, known in self._tablet_servers.items() if known != address}
                continue
            self._coordinator = answer.coordinator
            self._tablet_servers = dict(answer.tablet_servers)
            self._leaders.update({bucket: led_by for bucket, led_by in answer.leaders.items() if led_by is not None})
            if isinstance(call.destination, Leader):
                _check_exists(call.destination, answer)
            return
        raise failure

    def _sources(self) -> list[ServerAddress]:
        """Whom to ask for metadata: servers that were alive a moment ago, then those to begin with."""
        known = list(self._tablet_servers.values())
        random.shuffle(known)
        return list(dict.fromkeys([*known, *self._bootstrap]))

    def _forget(self, call: Call[Any, Any], address: ServerAddress) -> None:
        if isinstance(call.destination, Leader):
            self._leaders.pop(call.destination.bucket, None)
        elif call.destination is Role.COORDINATOR:
            self._coordinator = None
        else:
            self._tablet_servers = {n: known for n, known in self._tablet_servers.items() if known != address}


def worth_repeating(call: Call[Any, Any], error: BaseException) -> bool:
    """Whether a failed call may be sent again: the failure may pass, and its work is not done twice by that."""
    if isinstance(error, FlussServerError):
        return error.passing and (call.repeatable or not error.done_perhaps)
    return isinstance(error, FlussConnectionError) and (call.repeatable or not error.done_perhaps)


def _check_exists(wanted: Leader, answer: ClusterMetadata) -> None:
    """A bucket that the cluster does not know is not waited for."""
    if wanted.bucket in answer.leaders or not answer.leaders:
        return
    table_ids = {each.table_id for each in answer.leaders}
    if wanted.bucket.table_id not in table_ids:
        raise FlussServerError(
            FlussError.TABLE_NOT_EXIST, f"{wanted.path} is table {min(table_ids)} now", str(wanted.bucket)
        )
    raise FlussTieringError(
        ErrorCode.INVALID_REQUEST,
        f"{wanted.path} has no {wanted.bucket}: expected one of its {len(answer.leaders)} buckets",
    )


def _nobody(call: Call[Any, Any]) -> FlussServerError:
    match call.destination:
        case Role.COORDINATOR:
            what, why = "", "the cluster has no coordinator now"
        case Role.ANY:
            what, why = "", "the cluster has no tablet server that is alive"
        case Leader(path=path, bucket=bucket):
            what, why = f"{bucket} ({path})", "no tablet server that is alive leads it"
    return FlussServerError(FlussError.LEADER_NOT_AVAILABLE_EXCEPTION, why, what)
