"""The asyncio client of the tiering server, with the calls that programs need which wait for rounds."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import grpc
import grpc.aio

from fluss_tiering.api.v1 import kv_snapshot_leases_pb2 as leases_pb
from fluss_tiering.api.v1 import lake_tiering_pb2 as pb
from fluss_tiering.client.channel import Tries, require_own_process
from fluss_tiering.client.connection import PAGE_SIZE, RequestT, ResponseT, Stubs
from fluss_tiering.client.failed_call import FailedCall, error_of
from fluss_tiering.client.secured_target import SecuredTarget
from fluss_tiering.client.security import ClientSecurity
from fluss_tiering.client.target import Target, checked_timeout
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
from fluss_tiering.wire import leases as leases_wire
from fluss_tiering.wire import tiering as wire
from fluss_tiering.wire.tables import path_to_pb

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from fluss_tiering.client.connection import Method


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
        self._timeout = checked_timeout(timeout)
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
        request = pb.ListTieringStatusesRequest(table_path=None if path is None else path_to_pb(path))
        answer = await self._call(self._stubs.lake_tiering.ListTieringStatuses, request)
        return wire.statuses_from_pb(answer, failing=False)

    async def watch_tiering_statuses(self, paths: Sequence[TablePath] = ()) -> AsyncIterator[StatusChanges]:
        """Yield statuses and then each change, as `TieringClient.watch_tiering_statuses` does."""
        request = pb.WatchTieringStatusesRequest(table_paths=map(path_to_pb, paths))
        call = self._stubs.lake_tiering.WatchTieringStatuses(request)
        responses = aiter(cast("AsyncIterable[pb.WatchTieringStatusesResponse]", call))
        try:
            for number in itertools.count():
                # `asyncio.wait_for` of Python 3.11 loses a cancellation that comes together with a message.
                async with asyncio.timeout(self._timeout):
                    response = await anext(responses)
                changes = wire.changes_from_pb(response)
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
        request = pb.ResumeTablesRequest(table_paths=map(path_to_pb, paths), include_scheduled=include_scheduled)
        answer = await self._call(self._stubs.lake_tiering.ResumeTables, request)
        return [wire.resumed_from_pb(each) for each in answer.resumed_tables]

    async def list_tiering_rounds(
        self, path: TablePath | None = None, lease_id: str | None = None, limit: int = 20
    ) -> list[TieringRound]:
        """Return the last `limit` rounds of each of the tables, newest first."""
        pages = self._pages(self._stubs.lake_tiering.ListTieringRounds, wire.rounds_request(path, lease_id, limit))
        rounds = [wire.round_from_pb(each) async for page in pages for each in page.rounds]
        return sorted(rounds, key=lambda each: each.path)

    async def lease_outcome(self, lease_id: str, attempt_token: int | None = None) -> LeaseOutcome:
        """Return the newest round of each table under the lease, without rounds of attempts older than the token."""
        request = pb.GetLeaseOutcomeRequest(lease_id=lease_id, attempt_token=attempt_token)
        return wire.outcome_from_pb(await self._call(self._stubs.lake_tiering.GetLeaseOutcome, request))

    async def cancel_tiering(self, lease_id: str, attempt_token: int | None, reason: str) -> bool:
        """Fail the running rounds of the attempt; return False and do nothing if a newer attempt has begun."""
        request = wire.cancel_request(lease_id, attempt_token, reason)
        return not (await self._call(self._stubs.lake_tiering.CancelTiering, request)).stale_attempt

    async def drop_lease(self, lease_id: str, *, attempt_token: int | None = None) -> LeaseDrop:
        """Drop a lease, with everything that it keeps."""
        request = leases_pb.DropKvSnapshotLeaseRequest(lease_id=lease_id, attempt_token=attempt_token)
        return leases_wire.drop_from_pb(await self._call(self._stubs.leases.DropKvSnapshotLease, request))

    async def list_leases(self, lease_id: str | None = None) -> list[KvSnapshotLease]:
        """Return the lease of this id, if it exists, or all leases."""
        request = leases_pb.ListKvSnapshotLeasesRequest(lease_id=lease_id or "")
        pages = self._pages(self._stubs.leases.ListKvSnapshotLeases, request)
        return [leases_wire.lease_from_pb(each) async for page in pages for each in page.leases]

    async def _pages(self, method: Method[Any, ResponseT], request: Any) -> AsyncIterator[ResponseT]:  # noqa: ANN401
        """Yield the answers of a call that lists, page by page."""
        request.page_size = PAGE_SIZE
        while True:
            response: Any = await self._call(method, request)
            yield response
            if not response.next_page_token:
                return
            request.page_token = response.next_page_token

    async def _call(self, method: Method[RequestT, ResponseT], request: RequestT) -> ResponseT:
        tries = Tries(self._channel, self._timeout)
        while True:
            try:
                return await cast("Awaitable[ResponseT]", method(request, timeout=self._timeout))
            except grpc.aio.AioRpcError as failed:
                error = error_of(cast("FailedCall", failed), self._target, self._timeout)
            await asyncio.sleep(tries.pause_s(error))
