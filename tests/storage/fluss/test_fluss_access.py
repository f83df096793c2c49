"""The secrets for reading a cluster, and the error for a table that cannot be read."""

import os
import pickle
from dataclasses import replace
from unittest import mock

import pytest
from refusals import refused

from engine_support import table_info
from fluss_tiering.model.errors import ErrorCode
from fluss_tiering.model.table import StorageDescription
from fluss_tiering.storage.fluss import access as access_module
from fluss_tiering.storage.fluss.access import PASSWORD_VARIABLE, USERNAME_VARIABLE, ClusterAccess, hide_password
from fluss_tiering.storage.fluss.reading.reader import FlussSplitReader
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from fluss_tiering.storage.fluss.rpc.connection_steps import Credentials
from fluss_tiering.storage.open import cluster_access, open_split_reader

CLUSTER = StorageDescription("fluss", "", "", "", "localhost:1")
SECRETS = {
    USERNAME_VARIABLE: "ada",
    PASSWORD_VARIABLE: "its-password",
    "AWS_ACCESS_KEY_ID": "its-access-key",
    "AWS_SECRET_ACCESS_KEY": "its-secret-key",
    "AWS_ENDPOINT_URL": "http://store:9000",
    "AWS_DEFAULT_REGION": "eu-north-1",
    "AWS_REGION": "eu-west-1",
}


def test_access_is_what_the_environment_says_and_is_not_shown() -> None:
    access = ClusterAccess.from_environment(SECRETS)
    assert access.credentials == Credentials("ada", "its-password")
    assert dict(access.s3) == {
        "access_key": "its-access-key",
        "secret_key": "its-secret-key",
        "endpoint_override": "store:9000",
        "scheme": "http",
        "region": "eu-west-1",
    }
    assert pickle.loads(pickle.dumps(access)) == access
    for secret in ("its-password", "its-secret-key", "its-access-key"):
        assert secret not in repr(access)
        assert secret not in str(access)
    assert ClusterAccess.from_environment({}) == ClusterAccess()


@pytest.mark.parametrize(("given", "missing"), [(0, 1), (1, 0)])
def test_a_user_without_a_password_is_refused(given: int, missing: int) -> None:
    names = (USERNAME_VARIABLE, PASSWORD_VARIABLE)
    with refused(ErrorCode.INVALID_REQUEST, f"{names[given]} is set and {names[missing]} is not"):
        ClusterAccess.from_environment({names[given]: "x"})


def test_a_hidden_password_is_known_to_this_process_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_module, "_hidden_password", None)
    monkeypatch.setenv(USERNAME_VARIABLE, "ada")
    monkeypatch.setenv(PASSWORD_VARIABLE, "its-password")
    for _ in range(2):
        hide_password()
        assert PASSWORD_VARIABLE not in os.environ
        assert ClusterAccess.from_environment().credentials == Credentials("ada", "its-password")
    # It does not go to another user than the one of this process.
    with refused(ErrorCode.INVALID_REQUEST, PASSWORD_VARIABLE):
        ClusterAccess.from_environment({USERNAME_VARIABLE: "bob"})
    monkeypatch.delenv(USERNAME_VARIABLE)
    assert ClusterAccess.from_environment().credentials is None


def test_a_cluster_is_read_with_what_the_job_carries(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    assert cluster_access(CLUSTER) == ClusterAccess.from_environment(SECRETS)
    assert cluster_access(replace(CLUSTER, kind="embedded")) is None
    carried = ClusterAccess(Credentials("bob", "another"))
    first, second = open_split_reader(CLUSTER, "", carried), open_split_reader(CLUSTER, "")
    assert isinstance(first, FlussSplitReader)
    assert first._client._credentials == carried.credentials
    assert second._client._credentials == Credentials("ada", "its-password")
    # Connections are kept after a task.
    assert open_split_reader(CLUSTER, "", carried)._client is first._client


@pytest.mark.parametrize("option", ["table.log.format", "table.kv.format"])
def test_formats_that_are_not_read_are_named(option: str) -> None:
    table = table_info(1, properties={option: "indexed"})
    reader = FlussSplitReader(mock.create_autospec(FlussClient))
    with refused(ErrorCode.INVALID_TABLE, str(table.path), f"{option}=indexed"):
        list(reader.read_log(table, None, 0, 1))
    in_small_letters = table_info(1, properties={"table.log.format": "arrow"})
    assert list(reader.read_log(in_small_letters, None, 5, 5)) == []
