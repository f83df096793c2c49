"""The properties of Iceberg's FileIO as executors use them."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator

import pytest

from fluss_tiering.lake.object_store import (
    ExpiredCredentialsError,
    credentials_expire_ms,
    credentials_last,
    filesystem_of,
    naming_expired_credentials,
    openers,
    require_valid,
    require_writable,
    s3_arguments,
)
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from vending_support import S3Gate, Session

KEYS = {"s3.access-key-id": "key", "s3.secret-access-key": "secret", "s3.session-token": "token"}
ROLE = {
    "client.assume-role.arn": "arn:aws:iam::1:role/lake",
    "client.assume-role.external-id": "external",
    "client.assume-role.session-name": "rounds",
    "client.assume-role.region": "eu-central-1",
}


# D47
@pytest.mark.parametrize(
    ("properties", "arguments"),
    [
        (
            {**KEYS, "client.region": "eu-west-1"},
            {"access_key": "key", "secret_key": "secret", "session_token": "token", "region": "eu-west-1"},
        ),
        ({"s3.endpoint": "http://h:9"}, {"endpoint_override": "http://h:9"}),
        (
            {**KEYS, **ROLE},
            {
                "role_arn": "arn:aws:iam::1:role/lake",
                "external_id": "external",
                "session_name": "rounds",
                "region": "eu-central-1",
            },
        ),
        (
            {"s3.region": "us-east-1", "s3.acl": "bucket-owner-full-control", "s3.request-timeout": "5"},
            {
                "region": "us-east-1",
                "default_metadata": {"ACL": "bucket-owner-full-control"},
                "request_timeout": 5.0,
            },
        ),
    ],
)
def test_the_arguments_of_an_s3_file_system(properties, arguments):
    assert s3_arguments("bucket", properties) == arguments


# D47
@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"s3.sse.type": "kms", "s3.sse.key": "arn:aws:kms:1"}, "default encryption of the bucket"),
        ({"s3.sse.type": "custom"}, "default encryption of the bucket"),
        ({"s3.remote-signing-enabled": "true"}, "X-Iceberg-Access-Delegation=vended-credentials"),
    ],
)
def test_what_executors_cannot_do_is_refused_before_they_write(properties, said):
    with pytest.raises(FlussTieringError, match=said) as refused:
        require_writable("s3://bucket/db/t/data", properties)
    assert refused.value.code is ErrorCode.STORAGE
    require_writable("file:/lake/db/t/data", properties)
    require_writable("s3a://bucket/db/t/data", {**KEYS, "s3.sse.type": "s3", "s3.remote-signing-enabled": "false"})


@pytest.mark.parametrize("location", ["file:/lake#1/db/t/data", "s3://bucket/a?b/t", "hdfs://name/#"])
def test_locations_that_readers_would_cut_are_refused_before_anything_is_written(location):
    with pytest.raises(FlussTieringError, match="most readers cut it at") as refused:
        require_writable(location, {})
    assert refused.value.code is ErrorCode.STORAGE
    require_writable("file:/lake%20 1/db;c/t/data", {})


# D47
def test_an_error_after_the_credentials_have_expired_says_so():
    now = int(time.time() * 1000)
    for properties, expired in (
        ({}, False),
        ({"s3.session-token-expires-at-ms": str(now + 60_000)}, False),
        ({"s3.session-token-expires-at-ms": str(now - 1)}, True),
        ({"adls.sas-token-expires-at-ms.account": str(now - 1), "gcs.oauth2.token-expires-at": "soon"}, True),
    ):
        expected = pytest.raises(FlussTieringError, match="expired at 20") if expired else pytest.raises(OSError)
        with expected, naming_expired_credentials(properties):
            raise OSError("AWS Error ACCESS_DENIED")
    assert credentials_expire_ms({"s3.session-token-expires-at-ms": "5", "gcs.oauth2.token-expires-at": "3"}) == 3
    assert credentials_expire_ms(KEYS) is None


@pytest.mark.parametrize(
    ("properties", "last"),
    [
        ({}, True),
        ({"s3.access-key-id": "key", "s3.secret-access-key": "secret"}, True),
        (KEYS, False),
        ({"client.session-token": "token"}, False),
        ({**KEYS, "s3.session-token-expires-at-ms": "61000"}, True),
        ({**KEYS, "s3.session-token-expires-at-ms": "59000"}, False),
    ],
)
def test_how_long_credentials_last(properties, last, monkeypatch):
    monkeypatch.setattr("fluss_tiering.lake.object_store.time.time", lambda: 1.0)
    assert credentials_last(properties, 60_000) is last


def test_executors_get_what_opens_the_store_and_none_of_the_catalogs_secrets():
    catalog = {"uri": "u", "credential": "c", "token": "t", "jdbc.password": "p", "header.Authorization": "a"}
    store = {**KEYS, "client.region": "r", "adls.sas-token.account": "s", "gcs.oauth2.token": "g"}
    assert openers({**catalog, **store}) == store


@pytest.fixture
def gate() -> Iterator[S3Gate]:
    with S3Gate("127.0.0.1:1") as running:
        yield running


@pytest.mark.parametrize("answer", ["expired", "unknown", "denied"])
@pytest.mark.parametrize("with_token", [True, False])
def test_what_pyarrow_says_of_a_session_that_the_store_does_not_take(gate: S3Gate, answer: str, with_token: bool):
    session = Session(ended=True)
    if answer == "expired":
        gate.sessions[session.key_id] = session
    if answer == "denied":
        gate.refuse_with = (403, "AccessDenied", "Access Denied")
    properties = {**session.properties, "s3.endpoint": gate.endpoint, "s3.region": "us-east-1"}
    if not with_token:
        del properties["s3.session-token"]
        gate.sessions.clear()
    store = filesystem_of("s3://lake/db", properties)
    refused = pytest.raises(ExpiredCredentialsError if with_token else OSError, match=r"AWS Error")
    with (
        refused as raised,
        naming_expired_credentials(properties),
        store.open_output_stream("lake/db/file") as file,
    ):
        file.write(b"rows")
    assert session.token not in str(raised.value)
    assert properties["s3.secret-access-key"] not in str(raised.value)


def test_an_expired_session_is_not_tried():
    with pytest.raises(ExpiredCredentialsError, match="expired at 1970-01-01T00:00:05"):
        require_valid({"s3.session-token-expires-at-ms": "5000"})
    require_valid({"s3.session-token-expires-at-ms": str(int(time.time() * 1000) + 60_000)})
    require_valid(KEYS)


def test_the_error_of_expired_credentials_travels_between_processes():
    error = pickle.loads(pickle.dumps(ExpiredCredentialsError("they expired")))
    assert isinstance(error, ExpiredCredentialsError)
    assert (error.code, error.message) == (ErrorCode.STORAGE, "they expired")
