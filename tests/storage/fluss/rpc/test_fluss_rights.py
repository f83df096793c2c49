"""The rights that are declared for calls, and the errors about rights that are missing; without a cluster."""

from __future__ import annotations

import pickle

import pytest

from call_rights import RIGHTS, Operation, Right, Use, needed_for
from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.table import TableBucket, TablePath
from fluss_tiering.storage.fluss.rpc.acls import ResourceType
from fluss_tiering.storage.fluss.rpc.api_keys import ApiKey
from fluss_tiering.storage.fluss.rpc.call import ServerAddress
from fluss_tiering.storage.fluss.rpc.calls.cluster import ClusterMetadata
from fluss_tiering.storage.fluss.rpc.calls.log import fetch_log
from fluss_tiering.storage.fluss.rpc.errors import FlussError, FlussServerError
from fluss_tiering.storage.fluss.rpc.routing import Router, may_repeat

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
    assert needed_for({Use.HEALTH}) == [Right(describe, ResourceType.CLUSTER)]


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
