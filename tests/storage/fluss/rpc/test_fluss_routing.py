"""Which server the client asks for a bucket's leader, and when it asks again; without a cluster."""

import pytest

from fluss_tiering.model.table import TableBucket, TablePath
from fluss_tiering.storage.fluss.rpc.address import ServerAddress
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey
from fluss_tiering.storage.fluss.rpc.calls.log import OffsetType, log_offset
from fluss_tiering.storage.fluss.rpc.calls.metadata import ClusterMetadata
from fluss_tiering.storage.fluss.rpc.errors import FlussConnectionError, FlussError, FlussServerError
from fluss_tiering.storage.fluss.rpc.routing import Router

BUCKET = TableBucket(1, 0)
CALL = log_offset(TablePath("db", "t"), BUCKET, OffsetType.LATEST)
COORDINATOR, TABLET = ServerAddress("coordinator", 1), ServerAddress("tablet", 2)


def metadata_with(leader: int | None) -> ClusterMetadata:
    return ClusterMetadata(COORDINATOR, {0: TABLET}, {BUCKET: leader})


def test_a_tablet_server_that_knows_no_leader_is_not_the_last_word() -> None:
    steps = Router([TABLET]).steps(CALL)
    sent = next(steps)
    assert (sent.address, sent.call.api) == (TABLET, ApiKey.GET_METADATA)
    sent = steps.send(metadata_with(None))
    assert (sent.address, sent.call.api) == (COORDINATOR, ApiKey.GET_METADATA)
    sent = steps.send(metadata_with(0))
    assert (sent.address, sent.call.api) == (TABLET, ApiKey.LIST_OFFSETS)


def test_a_coordinator_that_is_away_leaves_it_at_that() -> None:
    router = Router([TABLET])
    steps = router.steps(CALL)
    next(steps)
    steps.send(metadata_with(None))
    with pytest.raises(FlussServerError) as failed:
        steps.throw(FlussConnectionError("gone"))
    assert failed.value.fluss_error is FlussError.LEADER_NOT_AVAILABLE_EXCEPTION
    # The client does not wait for it each time.
    steps = router.steps(CALL)
    next(steps)
    with pytest.raises(FlussServerError):
        steps.send(metadata_with(None))


def test_a_leader_that_is_known_is_asked_at_once() -> None:
    router = Router([TABLET])
    steps = router.steps(CALL)
    next(steps)
    assert steps.send(metadata_with(0)).call is CALL
    assert next(router.steps(CALL)).call is CALL
