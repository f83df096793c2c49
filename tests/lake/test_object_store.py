"""The properties of Iceberg's FileIO as executors use them, compared with those that Iceberg has."""

from __future__ import annotations

import pickle
import re
import time
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from pyarrow import fs

from fluss_tiering.lake.object_store import (
    ExpiredCredentialsError,
    credentials_expire_ms,
    credentials_last,
    filesystem_of,
    naming_expired_credentials,
    openers,
    path_of,
    require_valid,
    require_writable,
)
from fluss_tiering.lake.store_arguments import azure_arguments, gcs_arguments, s3_arguments
from fluss_tiering.lake.store_properties import REFUSED
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from vending_support import S3Gate, Session

KEYS = {"s3.access-key-id": "key", "s3.secret-access-key": "secret", "s3.session-token": "token"}
KINDS = ("blob", "dfs")
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
        ({"s3.endpoint": "http://h:9", "s3.path-style-access": "true"}, {"endpoint_override": "http://h:9"}),
        (
            {"client.region": "r", "s3.path-style-access": "false", "http-client.proxy-endpoint": "http://p:1"},
            {"region": "r", "force_virtual_addressing": True, "proxy_options": "http://p:1"},
        ),
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
        ({"client.credentials-provider": "com.example.Vault"}, "cannot run Java classes: give the catalog s3.access"),
        ({"s3.access-points.bucket": "arn:aws:s3:::1"}, r"s3\.access-points\.bucket=arn.*write to the bucket itself"),
    ],
)
def test_what_executors_cannot_do_is_refused_before_they_write(properties, said):
    with pytest.raises(FlussTieringError, match=said) as refused:
        require_writable("s3://bucket/db/t/data", properties)
    assert refused.value.code is ErrorCode.STORAGE
    require_writable("file:/lake/db/t/data", properties)
    require_writable("s3a://bucket/db/t/data", {**KEYS, "s3.sse.type": "s3", "s3.remote-signing-enabled": "false"})


# E26
def test_what_executors_cannot_do_in_other_stores_is_refused_and_what_they_take_in_its_place_is_not():
    azure, key = "abfss://lake@account.dfs.core.windows.net/db", {"adls.auth.shared-key.account.key": "k"}
    aws = {"client.credentials-provider": "software.amazon.awssdk.auth.credentials.ProfileCredentialsProvider"}
    for location, properties in (
        ("gs://bucket/db", {"gcs.encryption-key": "hidden"}),
        ("gs://bucket/db", {"gcs.user-project": "project"}),
        (azure, {"adls.token": "hidden"}),
        (azure, {"adls.token-credential-provider": "com.example.Vault"}),
    ):
        (name,) = properties
        with pytest.raises(FlussTieringError, match=f"the lake catalog has {name}=.*and executors") as refused:
            require_writable(location, properties)
        assert "hidden" not in refused.value.message
        require_writable("s3://bucket/db", properties)
    require_writable(azure, {"adls.token": "t", **key, "adls.token-credential-provider.x": "y"})
    require_writable("s3://bucket/db", {**aws, "gcs.user-project": "project"})
    require_writable("s3://bucket/db", {**KEYS, "client.credentials-provider": "com.example.Vault"})


# E26
def test_the_arguments_of_a_file_system_of_google():
    limit, endpoint = {"retry_time_limit": timedelta(minutes=1)}, {"scheme": "http", "endpoint_override": "h:9"}
    assert gcs_arguments({"gcs.no-auth": "true", "gcs.service.host": "http://h:9/"}) == {
        **limit,
        **endpoint,
        "anonymous": True,
    }
    assert gcs_arguments({"gcs.impersonate.service-account": "a@b", "gcs.project-id": "p"}) == {
        **limit,
        "target_service_account": "a@b",
    }
    ends = datetime(2026, 1, 1, tzinfo=UTC)
    token = {"gcs.oauth2.token": "t", "gcs.oauth2.token-expires-at": str(int(ends.timestamp() * 1000))}
    assert gcs_arguments(token) == {**limit, "access_token": "t", "credential_token_expiration": ends}
    alone = gcs_arguments({"gcs.oauth2.token": "t"})
    assert alone["credential_token_expiration"] > datetime.now(UTC)
    assert isinstance(filesystem_of("gs://bucket/db", {"gcs.oauth2.token": "t"}), fs.GcsFileSystem)


# E22
def test_the_arguments_of_a_file_system_of_azure():
    host, blob = "account.dfs.core.windows.net", ".blob.core.windows.net"
    usual = {"account_name": "account", "dfs_storage_authority": f".{host[8:]}", "blob_storage_authority": blob}
    for properties, arguments in (
        (
            {"adls.auth.shared-key.account.name": "account", "adls.auth.shared-key.account.key": "a2V5"},
            {"account_key": "a2V5"},
        ),
        ({f"adls.sas-token.{host}": "?sv=1", "adls.auth.shared-key.account.key": "a2V5"}, {"sas_token": "sv=1"}),
        ({"adls.sas-token.account": "sv=1", "adls.sas-token.other": "sv=2"}, {"sas_token": "sv=1"}),
        (
            {"adls.client-id": "c", "adls.client-secret": "s", "adls.tenant-id": "t"},
            {"client_id": "c", "client_secret": "s", "tenant_id": "t"},
        ),
        ({f"adls.connection-string.{host}": f"https://{host}"}, {f"{e}_storage_scheme": "https" for e in KINDS}),
        (
            {"adls.connection-string.account": "http://127.0.0.1:1/account"},
            {f"{e}_storage_scheme": "http" for e in KINDS} | {f"{e}_storage_authority": "127.0.0.1:1" for e in KINDS},
        ),
    ):
        assert azure_arguments(f"lake@{host}", properties) == {**usual, **arguments}
        assert isinstance(filesystem_of(f"abfss://lake@{host}/db", properties), fs.AzureFileSystem)
    assert azure_arguments("lake@onelake.blob.fabric.microsoft.com", {}) == {
        "account_name": "onelake",
        "blob_storage_authority": ".blob.fabric.microsoft.com",
        "dfs_storage_authority": ".dfs.fabric.microsoft.com",
    }
    assert azure_arguments("lake", {"adls.account-name": "a"}) == {"account_name": "a"}
    with pytest.raises(FlussTieringError, match="nothing names the storage account of the container 'lake'"):
        filesystem_of("abfss://lake/db", {})


# E22
def test_what_a_file_system_calls_a_file():
    assert path_of("abfss://lake@account.dfs.core.windows.net/db/t/f@1") == "lake/db/t/f@1"
    assert path_of("hdfs://node:8020/db/t") == "/db/t"
    assert path_of("gs://bucket/db/t") == path_of("s3://bucket/db/t") == "bucket/db/t"


# E21
def test_hdfs_without_its_library_is_refused_with_what_it_needs(tmp_path, monkeypatch):
    for name in ("HADOOP_HOME", "ARROW_LIBHDFS_DIR", "LD_LIBRARY_PATH"):
        monkeypatch.delenv(name, raising=False)
    for use in (require_writable, filesystem_of):
        with pytest.raises(
            FlussTieringError, match=r"libhdfs\.so was not found\): expected ARROW_LIBHDFS_DIR"
        ) as refused:
            use("hdfs://node:8020/db", {})
        assert refused.value.code is ErrorCode.STORAGE
    monkeypatch.setenv("ARROW_LIBHDFS_DIR", str(tmp_path))
    (tmp_path / "libhdfs.so").write_bytes(b"")
    require_writable("hdfs://node:8020/db", {})
    require_writable("s3://bucket/db", {})


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


CLASSES = (
    "aws/s3/S3FileIOProperties",
    "aws/AwsClientProperties",
    "aws/AwsProperties",
    "azure/AzureProperties",
    "gcp/GCPProperties",
)
TEXT = re.compile(rb"\x01\x00(.)((?:s3|client|gcs|adls)\.[a-z0-9.-]+)", re.DOTALL)
"""A text in a class file: a tag, two bytes with its length, and its characters."""


TAKEN = frozenset(
    {
        "s3.access-key-id",
        "s3.secret-access-key",
        "s3.session-token",
        "s3.session-token-expires-at-ms",
        "s3.endpoint",
        "s3.acl",
        "s3.path-style-access",
        "client.region",
        "client.assume-role.arn",
        "client.assume-role.region",
        "client.assume-role.external-id",
        "client.assume-role.session-name",
        "http-client.proxy-endpoint",
        "gcs.oauth2.token",
        "gcs.oauth2.token-expires-at",
        "gcs.no-auth",
        "gcs.service.host",
        "gcs.impersonate.service-account",
        "adls.sas-token.",
        "adls.sas-token-expires-at-ms.",
        "adls.connection-string.",
        "adls.auth.shared-key.account.name",
        "adls.auth.shared-key.account.key",
    }
)
"""The properties that executors follow."""

WITHOUT_EFFECT = frozenset(
    {
        "s3.access-grants.fallback-to-iam",
        "s3.acceleration-enabled",
        "s3.analytics-accelerator.",
        "s3.analytics-accelerator.enabled",
        "s3.checksum-enabled",
        "s3.chunked-encoding-enabled",
        "s3.cross-region-access-enabled",
        "s3.crt.enabled",
        "s3.crt.max-concurrency",
        "s3.delete-enabled",
        "s3.delete.batch-size",
        "s3.delete.num-threads",
        "s3.delete.tags.",
        "s3.directory-bucket.list-prefix-as-directory",
        "s3.dualstack-enabled",
        "s3.multipart.num-threads",
        "s3.multipart.part-size-bytes",
        "s3.multipart.threshold",
        "s3.preload-client-enabled",
        "s3.retry.max-wait-ms",
        "s3.retry.min-wait-ms",
        "s3.retry.num-retries",
        "s3.sse.key",
        "s3.sse.md5",
        "s3.staging-dir",
        "s3.use-arn-region-enabled",
        "s3.write.namespace-tag-enabled",
        "s3.write.storage-class",
        "s3.write.table-tag-enabled",
        "s3.write.tags.",
        "client.assume-role.timeout-sec",
        "client.credentials-provider.",
        "client.legacy-md5-plugin-enabled",
        "client.refresh-credentials-enabled",
        "client.refresh-credentials-endpoint",
        "gcs.analytics-core.enabled",
        "gcs.channel.read.chunk-size-bytes",
        "gcs.channel.write.chunk-size-bytes",
        "gcs.client-lib-token",
        "gcs.delete.batch-size",
        "gcs.impersonate.lifetime-seconds",
        "gcs.impersonate.scopes",
        "gcs.oauth2.refresh-credentials-enabled",
        "gcs.oauth2.refresh-credentials-endpoint",
        "gcs.project-id",
        "adls.read.block-size-bytes",
        "adls.write.block-size-bytes",
        "adls.refresh-credentials-enabled",
        "adls.refresh-credentials-endpoint",
        "adls.token-credential-provider.",
    }
)
"""The properties without an effect on executors."""


# E26
@pytest.mark.system
def test_each_property_of_iceberg_is_in_one_of_the_lists(spark_jars: str) -> None:
    runtime = next(jar for jar in spark_jars.split(",") if "iceberg-spark-runtime" in jar)
    found = set()
    with zipfile.ZipFile(runtime) as jar:
        for name in CLASSES:
            for text in TEXT.finditer(jar.read(f"org/apache/iceberg/{name}.class")):
                found.add(text[2][: text[1][0]].decode())
    assert len(found) > 80
    assert found <= TAKEN | WITHOUT_EFFECT | REFUSED.keys()
    assert not (TAKEN & WITHOUT_EFFECT) | ((TAKEN | WITHOUT_EFFECT) & REFUSED.keys())
