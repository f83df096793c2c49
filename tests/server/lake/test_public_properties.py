"""Readers see what a property says only if its key is known to hold no secret."""

from __future__ import annotations

import inspect
import re

from hypothesis import given
from hypothesis import strategies as st
from pyiceberg import io as pyiceberg_io

from cases import cases
from fluss_tiering.server.core.lake.catalog import public_properties

OF_PYICEBERG = {
    value
    for name, value in inspect.getmembers(pyiceberg_io)
    if isinstance(value, str)
    and name.isupper()
    and "." in value
    and any(each in name for each in ("TOKEN", "SECRET", "KEY", "CRED", "CONNECTION_STRING", "KERB_TICKET", "KWARGS"))
    and not name.endswith(("_PREFIX", "_AT_MS"))
}
"""The credentials among the properties that pyiceberg names as constants."""

DOCUMENTED = """
token credential user password ssl
jdbc.user jdbc.password jdbc.sslpassword jdbc.sslkey jdbc.anything
rest.access-key-id rest.secret-access-key rest.session-token rest.auth.basic.username rest.auth.basic.password
rest.client.proxy.username rest.client.proxy.password rest.remote-signing.config
auth auth.basic.password auth.oauth2.client_secret basic.auth ssl.client.key
header.Authorization header.Cookie header.X-Api-Key header.Proxy-Authorization
client.assume-role.external-id client.credentials-provider.secret client.access-key-id client.secret-access-key
client.session-token botocore_session
s3.access-key-id s3.secret-access-key s3.session-token s3.sse.key s3.sse.md5
dynamodb.secret-access-key dynamodb.session-token glue.secret-access-key glue.session-token
gcs.oauth2.token gcs.client-lib-token gcs.encryption-key gcs.decryption-key gcs.session-kwargs gcs.service.key
adls.auth.shared-key.account.key adls.sas-token.account.dfs.core.windows.net adls.connection-string.account adls.token
adls.token-credential-provider.client-secret adls.account-key adls.client-secret adls.credential adls.sas-token
gcp.bigquery.credentials-info hf.token hdfs.kerberos_ticket
hadoop.fs.s3a.secret.key hadoop.fs.azure.account.key.lake.dfs.core.windows.net
table-default.password table-override.write.token nessie.authentication.token authentication.password
polaris.client.secret snowflake.password jdbc.private_key_file_pwd anything.else
"""
"""The credentials in the documentation of Iceberg, its file IOs, its catalogs and their drivers."""

KEYS = sorted({*OF_PYICEBERG, *DOCUMENTED.split()})

values = st.one_of(
    st.text(min_size=1),
    st.sampled_from(["***", '"x"', "***;", "a;b", "a,b", ")", "a b", "jdbc:", "s3://a", "='"]).flatmap(
        lambda start: st.text(min_size=1).map(lambda end: start + end)
    ),
)


def test_pyiceberg_has_credentials() -> None:
    assert {"s3.secret-access-key", "adls.sas-token", "gcs.oauth2.token"} <= OF_PYICEBERG


@given(value=values)
def test_nothing_is_shown_of_a_credential(value: str) -> None:
    for key in KEYS:
        assert public_properties({key: value}, of_catalog=True) == {key: "***"}
        option = f"table.datalake.iceberg.{key}"
        assert public_properties({option: value}) == {option: "***"}
        assert public_properties({key: value}) == {key: "***"}, "a user's own option"


PASSWORDS = ["plain", "a/b", "a:b", "a@b", "a?b", "a#b", "a;b", "a b", "a%40b", "a&b=c", "***", "8080/x", "(x)", "[x]"]


@cases("password", PASSWORDS)
@cases(
    "uri",
    [
        "postgresql+psycopg2://u:{}@h/db",
        "jdbc:postgresql://u:{}@h:5432/db?ssl=true",
        "jdbc:postgresql://h/db?user=u&password={}",
        "jdbc:postgresql://h/db?user=u@corp&password={}",
        "jdbc:sqlserver://h;user=u;password={}",
        "jdbc:mysql://(host=h,user=u,password={})/db",
        "jdbc:mysql://address=(host=h)(password={})/db",
        "jdbc:oracle:thin:u/{}@h:1521:sid",
        "jdbc:oracle:thin:@//h:1521/x?password={}",
        "jdbc:h2:mem:x;PASSWORD={}",
        "https://u:{}@h/x",
        "https://h/x?sig={}",
        "https://h/x#access_token={}",
        "u:{}@h:5432",
    ],
)
def test_uris_lose_their_logins_and_parameters(uri: str, password: str) -> None:
    secret = re.sub("[abx]|plain", r"SECRET\g<0>", password)
    for key in ("uri", "warehouse", "s3.endpoint", "oauth2-server-uri", "http-client.proxy-endpoint"):
        shown = public_properties({key: uri.format(secret)}, of_catalog=True)[key]
        assert "SECRET" not in shown


@cases(
    ("value", "shown"),
    [
        ("https://lake.example.com:8181/v1", None),
        ("s3://bucket/ware_house", None),
        ("thrift://a:9083,thrift://b:9083", None),
        ("file:/tmp/warehouse", None),
        ("/tmp/warehouse", None),
        ("my_catalog", None),
        ("arn:aws:s3tables:eu-west-1:123456789012:bucket/x", None),
        ("sqlite:////data/catalog.db", None),
        ("jdbc:sqlite:/data/catalog.db?busy_timeout=30000", None),
        ("jdbc:postgresql://db:5432/lake?sslmode=require&connectTimeout=10", None),
        ("jdbc:sqlite:/data/catalog.db?busy_timeout=1&password=x", "jdbc:sqlite:/data/catalog.db?***"),
        ("jdbc:sqlite:/data/catalog.db?busy_timeout=1#password=x", "jdbc:sqlite:/data/catalog.db?***"),
        ("jdbc:sqlite:/data/catalog.db?busy_timeout=a/b", "jdbc:sqlite:/data/catalog.db?***"),
        ("postgresql+psycopg2://u:SEC/RETpw@h/db", "postgresql+psycopg2://***@h/db"),
        ("jdbc:postgresql://db:5432/lake?user=u", "jdbc:postgresql://db:5432/lake?***"),
    ],
)
def test_what_is_no_secret_stays(value: str, shown: str | None) -> None:
    assert public_properties({"uri": value, "warehouse": value}, of_catalog=True) == dict.fromkeys(
        ("uri", "warehouse"), shown or value
    )


def test_options_of_tables_stay() -> None:
    options = {
        "table.datalake.enabled": "true",
        "table.datalake.freshness": "30s",
        "table.auto-partition.time-zone": "Europe/Berlin",
        "table.merge-engine": "first_row",
        "iceberg.write.metadata.metrics.column.name": "truncate(16)",
        "iceberg.format-version": "2",
        "table.datalake.iceberg.type": "rest",
        "table.datalake.iceberg.header.X-Iceberg-Access-Delegation": "vended-credentials",
        "table.datalake.iceberg.table-default.write.format.default": "parquet",
    }
    assert public_properties(options) == options
    hidden = {"iceberg.write.api-key": "x", "iceberg.own": "x", "table.log.token": "x", "table.datalake.paimon.x": "x"}
    assert public_properties(hidden) == dict.fromkeys(hidden, "***")
