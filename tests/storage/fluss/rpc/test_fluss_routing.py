"""Which server the client asks for a bucket's leader, when it asks again, and which rights its calls need."""

import pickle

import pytest

from call_rights import RIGHTS, Operation, Right, Use, needed_for
from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.table import TableBucket, TablePath
from fluss_tiering.storage.fluss.rpc.acls import ResourceType
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey
from fluss_tiering.storage.fluss.rpc.call import ServerAddress
from fluss_tiering.storage.fluss.rpc.calls.cluster import ClusterMetadata
from fluss_tiering.storage.fluss.rpc.calls.lake import heartbeat
from fluss_tiering.storage.fluss.rpc.calls.log import OffsetType, fetch_log, log_offset
from fluss_tiering.storage.fluss.rpc.errors import FlussConnectionError, FlussError, FlussServerError
from fluss_tiering.storage.fluss.rpc.routing import Router, may_repeat

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


def standing_by() -> FlussServerError:
    return FlussServerError.of(65, "This coordinator server is not the current leader.")


def test_a_coordinator_that_stands_by_leaves_the_question_to_the_next_server() -> None:
    standby = ServerAddress("standby", 3)
    for _ in range(20):  # in whichever order they are asked
        steps = Router([standby, TABLET]).steps(heartbeat())
        sent = next(steps)
        if sent.address == standby:
            sent = steps.throw(standing_by())
        assert (sent.address, sent.call.api) == (TABLET, ApiKey.GET_METADATA)
        sent = steps.send(metadata_with(0))
        assert (sent.address, sent.call.api) == (COORDINATOR, ApiKey.LAKE_TIERING_HEARTBEAT)
    # Nobody else is left: the error says that it may pass.
    router = Router([standby])
    steps = router.steps(heartbeat())
    next(steps)
    with pytest.raises(FlussServerError) as failed:
        steps.throw(standing_by())
    assert failed.value.transient
    assert not failed.value.outcome_unknown
    assert failed.value.code is ErrorCode.UNAVAILABLE


def test_a_coordinator_that_leads_no_longer_is_looked_for_anew() -> None:
    router = Router([TABLET])
    steps = router.steps(heartbeat())
    next(steps)
    steps.send(metadata_with(0))
    with pytest.raises(FlussServerError):
        steps.throw(standing_by())
    steps = router.steps(heartbeat())
    assert next(steps).call.api is ApiKey.GET_METADATA
    elected = ServerAddress("elected", 4)
    assert steps.send(ClusterMetadata(elected, {0: TABLET}, {})).address == elected


@pytest.mark.parametrize("repeatable", [True, False])
def test_a_call_is_repeated_after_it_met_a_coordinator_that_stands_by(repeatable: bool) -> None:
    # It did nothing there, so that even a call that must not be done twice may be sent again.
    assert may_repeat(heartbeat(request_table=not repeatable), standing_by())


def test_a_write_to_a_disk_that_is_too_full_is_not_repeated() -> None:
    # Space does not come back by itself.
    full = FlussServerError(FlussError.DISK_WRITE_LOCKED, "over the limit")
    assert not may_repeat(heartbeat(), full)
    assert full.code is ErrorCode.LIMIT_EXCEEDED
    assert "free space on the disk of that tablet server" in full.message


def test_another_error_of_metadata_is_not_asked_of_everyone() -> None:
    steps = Router([TABLET, COORDINATOR]).steps(heartbeat())
    next(steps)
    with pytest.raises(FlussServerError) as failed:
        steps.throw(FlussServerError.of(48, "no"))
    assert failed.value.fluss_error is FlussError.AUTHORIZATION_EXCEPTION


ORDERS = TablePath("shop", "orders")
AUTHORIZATION = FlussError.AUTHORIZATION_EXCEPTION.value
OF_A_PRINCIPAL = (
    "Principal FlussPrincipal{{name='tiering', type='User'}} have no authorization to operate {} on resource "
    "Resource{{type={}, name='{}'}} "
)
OF_A_BUCKET = "No permission to READ table orders in database shop"


def test_each_call_has_a_right() -> None:
    assert RIGHTS.keys() == set(ApiKey)
    assert all(each.uses or api is ApiKey.DROP_DATABASE for api, each in RIGHTS.items())


def test_the_rights_of_a_use_have_no_right_that_another_includes() -> None:
    describe, read, write = Operation.DESCRIBE, Operation.READ, Operation.WRITE
    serving = Right(describe, ResourceType.DATABASE)
    reading, writing = Right(read, ResourceType.TABLE), Right(write, ResourceType.TABLE)
    assert needed_for({Use.SERVING}) == [serving, Right(describe, ResourceType.TABLE)]
    assert needed_for({Use.SERVING, Use.TIERING}) == [serving, reading]
    assert needed_for({Use.SERVING, Use.READING}) == [serving, reading]
    assert needed_for({Use.READING}) == [reading]
    assert needed_for({Use.SERVING, Use.TIERING, Use.WRITING}) == [serving, reading, writing]


@pytest.mark.parametrize(
    ("operation", "resource_type", "name", "on", "resource"),
    [
        ("CREATE", "CLUSTER", "fluss-cluster", "CLUSTER;", "cluster"),
        ("CREATE", "DATABASE", "shop", "DATABASE shop;", "cluster.shop"),
        ("READ", "TABLE", "shop.orders", "TABLE shop.orders;", "cluster.shop.orders"),
    ],
)
def test_an_error_names_the_missing_acl(operation: str, resource_type: str, name: str, on: str, resource: str) -> None:
    error = FlussServerError.of(AUTHORIZATION, OF_A_PRINCIPAL.format(operation, resource_type, name), "a call")
    assert error.code is ErrorCode.AUTHORIZATION
    assert error.message.startswith(f"a call: the Fluss cluster refuses User:tiering {operation} on {on}")
    assert (
        f"CALL sys.add_acl(resource => '{resource}', permission => 'ALLOW', principal => 'User:tiering', "
        f"operation => '{operation}')"
    ) in error.message
    # Who was refused is not who asks for the text.
    assert error.of_user("other") is error
    again = pickle.loads(pickle.dumps(error))
    assert (again.message, again.missing_acl) == (error.message, error.missing_acl)


def test_the_user_is_named_if_fluss_does_not() -> None:
    error = FlussServerError.of(AUTHORIZATION, OF_A_BUCKET)
    assert "this user READ on TABLE shop.orders" in error.message
    assert "principal => 'User:NAME'" in error.message
    assert error.of_user(None) is error
    named = error.of_user("tiering")
    assert "refuses User:tiering READ on TABLE shop.orders" in named.message
    assert "principal => 'User:tiering'" in named.message
    assert pickle.loads(pickle.dumps(named)).message == named.message


def test_an_authorizer_of_others_is_quoted() -> None:
    error = FlussServerError.of(AUTHORIZATION, "not on Sundays", "a call")
    assert error.code is ErrorCode.AUTHORIZATION
    assert error.message.startswith("a call: Fluss says AUTHORIZATION_EXCEPTION: not on Sundays;")
    assert error.missing_acl is None
    assert error.of_user("tiering") is error


def test_a_table_that_metadata_leave_out_is_refused_and_not_waited_for() -> None:
    bucket = TableBucket(1, 0)
    steps = Router([ServerAddress("tablet", 1)]).steps(fetch_log(ORDERS, bucket, 0))
    assert next(steps).call.api is ApiKey.GET_METADATA
    hidden = ClusterMetadata(None, {0: ServerAddress("tablet", 1)}, hidden=frozenset({ORDERS}))
    with pytest.raises(FlussServerError) as refused:
        steps.send(hidden)
    assert refused.value.code is ErrorCode.AUTHORIZATION
    assert "DESCRIBE on TABLE shop.orders" in refused.value.message
    assert not may_repeat(fetch_log(ORDERS, bucket, 0), refused.value)
