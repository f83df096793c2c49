"""Every call by every role, against the roles that the protos declare."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from callers import METHODS, REFUSED, call

from cases import cases
from engine_support import ServerThread
from fluss_tiering.api.v1 import access_pb2
from token_support import add_tokens

# Written by hand, and not derived from the code under test.
MAY = {
    "reader": {"READER"},
    "writer": {"READER", "WRITER"},
    "tierer": {"READER", "TIERER"},
    "operator": {"READER", "TIERER", "OPERATOR"},
    "admin": {"READER", "WRITER", "TIERER", "OPERATOR", "ADMIN"},
}


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    file = tmp_path_factory.mktemp("tokens") / "tokens.json"
    return file, add_tokens(file, {role: [role] for role in MAY})


@pytest.fixture(scope="module")
def channel(tmp_path_factory: pytest.TempPathFactory, tokens: tuple[Path, dict[str, str]]) -> Iterator[grpc.Channel]:
    with (
        ServerThread(tmp_path_factory.mktemp("guarded"), tokens_file=tokens[0]) as server,
        grpc.insecure_channel(server.target) as opened,
    ):
        yield opened


def required(path: str) -> str:
    value = METHODS[path].GetOptions().Extensions[access_pb2.required_role]
    return access_pb2.PbRole.Name(value).removeprefix("PB_ROLE_")


@cases("path", METHODS)
def test_each_call_declares_its_role(path: str) -> None:
    assert required(path) != "UNSPECIFIED"


@cases("role", MAY)
@cases("path", METHODS)
def test_each_call_is_answered_to_the_roles_that_have_it_and_to_no_other(
    channel: grpc.Channel, tokens: tuple[Path, dict[str, str]], path: str, role: str
) -> None:
    status, details = call(channel, path, tokens[1][role])
    if required(path) in MAY[role]:
        assert status not in REFUSED, details
    else:
        assert status is grpc.StatusCode.PERMISSION_DENIED
        assert f"token/{role} may not call {METHODS[path].name}: it takes the role {required(path).lower()}" in details


@cases("path", METHODS)
def test_no_call_is_answered_to_nobody(channel: grpc.Channel, path: str) -> None:
    status, details = call(channel, path)
    assert status is grpc.StatusCode.UNAUTHENTICATED
    assert "FLUSS_TIERING_TOKEN" in details
