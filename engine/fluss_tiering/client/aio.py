"""The asyncio client of the tiering server: what waits on rounds needs, for example an Airflow trigger."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import grpc
import grpc.aio

from fluss_tiering.api.v1.lake_tiering_pb2 import WatchTieringStatusesResponse
from fluss_tiering.client.calls import leases, tiering
from fluss_tiering.client.calls.call import Stubs, UnaryCall
from fluss_tiering.client.channel import CHANNEL_OPTIONS, FailedCall, checked_target, error_of
from fluss_tiering.model.closing import AsyncClosing
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.lease import KvSnapshotLease, LeaseDrop
from fluss_tiering.model.table import TablePath
from fluss_tiering.model.tiering import LeaseOutcome, StatusChanges, TieringRound, TieringStatus
from fluss_tiering.wire.tiering import changes_from_pb

if TYPE_CHECKING:
    from collections.abc import Awaitable

ResultT = TypeVar("ResultT")


class AsyncTieringClient(AsyncClosing):
    """Like `TieringClient`, with the same errors and deadlines; belongs to the event loop it is made in."""

    def __init__(self, target: str, *, timeout: float = 30.0) -> None:
        self._target = checked_target(target)
        self._timeout = timeout
        self._channel = grpc.aio.insecure_channel(target, CHANNEL_OPTIONS)
        # The generated stubs serve both kinds of channel; what their methods return differs, see `_call`.
        self._stubs = Stubs(cast("grpc.Channel", self._channel))

    async def close(self) -> None:
        """Closes the connection."""
        await self._channel.close()

    async def list_tiering_statuses(self, path: TablePath | None = None) -> list[TieringStatus]:
        """The status of a table, or of all tables that are tiered. Raises TABLE_NOT_EXIST, INVALID_TIERING_STATE."""
        return await self._call(tiering.list_tiering_statuses(path))

    async def watch_tiering_statuses(self, paths: Sequence[TablePath] = ()) -> AsyncIterator[StatusChanges]:
        """As `TieringClient.watch_tiering_statuses`."""
        call = self._stubs.lake_tiering.WatchTieringStatuses(tiering.watch_request(paths))
        responses = aiter(cast("AsyncIterable[WatchTieringStatusesResponse]", call))
        try:
            for number in itertools.count():
                changes = changes_from_pb(await asyncio.wait_for(anext(responses), self._timeout))
                if number == 0 or changes.statuses or changes.removed:
                    yield changes
        except StopAsyncIteration:
            return
        except grpc.aio.AioRpcError as error:
            raise error_of(cast("FailedCall", error), self._target, self._timeout) from error
        except TimeoutError as error:
            raise FlussTieringError(
                ErrorCode.UNAVAILABLE,
                f"the tiering server at {self._target} fell silent for {self._timeout:g} s: watch again",
            ) from error
        finally:
            call.cancel()

    async def resume_tables(self, paths: Sequence[TablePath]) -> list[TieringStatus | FlussTieringError]:
        """Ends the rest of failed tables, parked ones too, each on its own: its status then, or why not (S19)."""
        return await self._call(tiering.resume_tables(paths))

    async def list_tiering_rounds(
        self, path: TablePath | None = None, lease_id: str | None = None, limit: int = 20
    ) -> list[TieringRound]:
        """The last `limit` rounds of each table asked for, newest first (S23)."""
        return await self._call(tiering.list_tiering_rounds(path, lease_id, limit))

    async def lease_outcome(self, lease_id: str, attempt_token: int | None = None) -> LeaseOutcome:
        """The newest round of each table under the lease, without those of attempts older than the token (S25)."""
        return await self._call(tiering.lease_outcome(lease_id, attempt_token))

    async def cancel_tiering(self, lease_id: str, attempt_token: int | None, reason: str) -> bool:
        """Fails the running rounds of the attempt; False when a newer attempt began: nothing was done (L22)."""
        return await self._call(tiering.cancel_tiering(lease_id, attempt_token, reason))

    async def drop_lease(self, lease_id: str, *, attempt_token: int | None = None) -> LeaseDrop:
        """Drops a lease with all it pins."""
        return await self._call(leases.drop(lease_id, attempt_token))

    async def list_leases(self, lease_id: str | None = None) -> list[KvSnapshotLease]:
        """The lease of that id, where there is one, or all."""
        return await self._call(leases.list_leases(lease_id))

    async def _call(self, call: UnaryCall[Any, Any, ResultT]) -> ResultT:
        answer = call.method(self._stubs)(call.request, timeout=self._timeout)
        try:
            return call.read(await cast("Awaitable[Any]", answer))
        except grpc.aio.AioRpcError as error:
            raise error_of(cast("FailedCall", error), self._target, self._timeout) from error
