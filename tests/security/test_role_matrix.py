"""Every call by every role, against the roles that the protos declare."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest
from callers import METHODS, REFUSED, call

from cases import cases
from fluss_tiering.api.v1 import access_pb2
from token_support import TokenServer

# Written by hand, and not derived from the code under test.
MAY = {
    "reader": {"READER"},
    "writer": {"READER", "WRITER"},
    "tierer": {"READER", "TIERER"},
    "operator": {"READER", "TIERER", "OPERATOR"},
    "admin": {"READER", "WRITER", "TIERER", "OPERATOR", "ADMIN"},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenServer]:
    with TokenServer(tmp_path_factory.mktemp("guarded"), {role: [role] for role in MAY}) as running:
        yield running


def required(path: str) -> str:
    value = METHODS[path].GetOptions().Extensions[access_pb2.required_role]
    return access_pb2.PbRole.Name(value).removeprefix("PB_ROLE_")


@cases("path", METHODS)
def test_each_call_declares_its_role(path: str) -> None:
    assert required(path) != "UNSPECIFIED"


@cases("role", MAY)
@cases("path", METHODS)
def test_each_call_is_answered_to_the_roles_that_have_it_and_to_no_other(
    server: TokenServer, path: str, role: str
) -> None:
    status, details = call(server.channel, path, server.tokens[role])
    if required(path) in MAY[role]:
        assert status not in REFUSED, details
    else:
        assert status is grpc.StatusCode.PERMISSION_DENIED
        assert f"token/{role} may not call {METHODS[path].name}: it takes the role {required(path).lower()}" in details


@cases("path", METHODS)
def test_no_call_is_answered_to_nobody(server: TokenServer, path: str) -> None:
    status, details = call(server.channel, path)
    assert status is grpc.StatusCode.UNAUTHENTICATED
    assert "FLUSS_TIERING_TOKEN" in details
