"""The asyncio client of the tiering server, with the calls that programs need which wait for rounds."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import grpc
import grpc.aio

from fluss_tiering.api.v1.lake_tiering_pb2 import WatchTieringStatusesResponse
from fluss_tiering.client.calls import leases, tiering
from fluss_tiering.client.calls.arguments import seconds
from fluss_tiering.client.calls.call import Stubs, UnaryCall, next_page
from fluss_tiering.client.failed_call import FailedCall, error_of
from fluss_tiering.client.fork import require_own_process
from fluss_tiering.client.secured_target import SecuredTarget
from fluss_tiering.client.security import ClientSecurity
from fluss_tiering.client.target import Target
from fluss_tiering.client.throttling import Tries
from fluss_tiering.model.closing import AsyncClosing
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import (
    KvSnapshotLease,
    LeaseDrop,
    LeaseOutcome,
    StatusChanges,
    TieringRound,
    TieringStatus,
)
from fluss_tiering.wire.tiering import changes_from_pb

if TYPE_CHECKING:
    from collections.abc import Awaitable

ResultT = TypeVar("ResultT")
T = TypeVar("T")


class AsyncTieringClient(AsyncClosing):
    """The asyncio client of the tiering server.

    It has the errors and deadlines of `TieringClient`. It belongs to the event loop in which it is made.

    Args:
        target: The address of the server, as "host:port". With "id@host:port" each call is refused unless the server
            has this id, which it logs at its start.
        timeout: The deadline of each call, and the longest wait for each message of a stream, in seconds.
        label: What errors name besides the address, for example a connection of Airflow.
        security: The client's credentials; None for those that the environment variables name.

    Raises:
        FlussTieringError: INVALID_REQUEST if the address has no host or no port, if the credentials are wrong or would
            be sent to another machine without TLS, or if this process was forked from one that had used a client. Each
            call raises it if a server of another id answers.
    """

    def __init__(
        self,
        target: str,
        *,
        timeout: float = 30.0,
        label: str | None = None,
        security: ClientSecurity | None = None,
    ) -> None:
        named = Target.parse(target)
        self._target = f"{named.address} ({label})" if label else named.address
        self._timeout = seconds("the timeout of a client is", timeout)
        require_own_process()
        self._secured = SecuredTarget(named, security or ClientSecurity.from_environment())
        self._channel = self._secured.open_aio_channel()
        # The generated stubs serve both kinds of channel. Their methods return different things, see `_call`.
        self._stubs = Stubs(self._channel)

    async def close(self) -> None:
        """Close the connection. Later calls raise FlussTieringError with INVALID_REQUEST."""
        self._secured.close()
        await self._channel.aclose()

    async def list_tiering_statuses(self, path: TablePath | None = None) -> list[TieringStatus]:
        """Return the status of a table, or of all tables that are tiered.

        Raises:
            FlussTieringError: TABLE_NOT_EXIST if there is no such table; INVALID_TIERING_STATE if it is not tiered.
        """
        return await self._call(tiering.list_tiering_statuses(path))

    async def watch_tiering_statuses(self, paths: Sequence[TablePath] = ()) -> AsyncIterator[StatusChanges]:
        """Yield statuses and then each change, as `TieringClient.watch_tiering_statuses` does."""
        call = self._stubs.lake_tiering.WatchTieringStatuses(tiering.watch_request(paths))
        responses = aiter(cast("AsyncIterable[WatchTieringStatusesResponse]", call))
        try:
            for number in itertools.count():
                # `asyncio.wait_for` of Python 3.11 loses a cancellation that comes together with a message.
                async with asyncio.timeout(self._timeout):
                    response = await anext(responses)
                changes = changes_from_pb(response)
                if number == 0 or changes.statuses or changes.removed:
                    yield changes
        except StopAsyncIteration:
            return
        except grpc.aio.AioRpcError as error:
            failed = error_of(cast("FailedCall", error), self._target, self._timeout)
            self._channel.follow(failed)
            raise failed from None
        except TimeoutError as error:
            raise FlussTieringError(
                ErrorCode.UNAVAILABLE,
                f"the tiering server at {self._target} sent nothing for {self._timeout:g} s: watch again",
            ) from error
        finally:
            call.cancel()

    async def resume_tables(
        self, paths: Sequence[TablePath], *, include_scheduled: bool = False
    ) -> list[TieringStatus | FlussTieringError]:
        """Make failed tables pending, parked ones too; see `TieringClient.resume_tables`."""
        return await self._call(tiering.resume_tables(paths, include_scheduled))

    async def list_tiering_rounds(
        self, path: TablePath | None = None, lease_id: str | None = None, limit: int = 20
    ) -> list[TieringRound]:
        """Return the last `limit` rounds of each of the tables, newest first."""
        rounds = await self._list(tiering.list_tiering_rounds(path, lease_id, limit))
        return sorted(rounds, key=lambda each: each.path)

    async def lease_outcome(self, lease_id: str, attempt_token: int | None = None) -> LeaseOutcome:
        """Return the newest round of each table under the lease, without rounds of attempts older than the token."""
        return await self._call(tiering.lease_outcome(lease_id, attempt_token))

    async def cancel_tiering(self, lease_id: str, attempt_token: int | None, reason: str) -> bool:
        """Fail the running rounds of the attempt; return False and do nothing if a newer attempt has begun."""
        return await self._call(tiering.cancel_tiering(lease_id, attempt_token, reason))

    async def drop_lease(self, lease_id: str, *, attempt_token: int | None = None) -> LeaseDrop:
        """Drop a lease, with everything that it keeps."""
        return await self._call(leases.drop_lease(lease_id, attempt_token))

    async def list_leases(self, lease_id: str | None = None) -> list[KvSnapshotLease]:
        """Return the lease of this id, if it exists, or all leases."""
        return await self._list(leases.list_leases(lease_id))

    async def _list(self, call: UnaryCall[Any, Any, list[T]]) -> list[T]:
        entries: list[T] = []
        page: UnaryCall[Any, Any, list[T]] | None = call
        while page is not None:
            response = await self._call(replace(page, read=lambda response: response))
            entries += page.read(response)
            page = next_page(page, response)
        return entries

    async def _call(self, call: UnaryCall[Any, Any, ResultT]) -> ResultT:
        tries = Tries(self._channel, self._timeout)
        while True:
            answer = call.method(self._stubs)(call.request, timeout=self._timeout)
            try:
                return call.read(await cast("Awaitable[Any]", answer))
            except grpc.aio.AioRpcError as failed:
                error = error_of(cast("FailedCall", failed), self._target, self._timeout)
            await asyncio.sleep(tries.pause_s(error))
