"""What Spark masks of the settings of a session that we start."""

from __future__ import annotations

import re

import pytest

from fluss_tiering.spark.startup.session import REDACTION, SECRETS, redaction_conf

PREFIX = "spark.sql.catalog.lake."


@pytest.mark.parametrize(
    "name",
    [
        "s3.secret-access-key",
        "s3.access-key-id",
        "s3.session-token",
        "s3.sse.key",
        "credential",
        "token",
        "header.Authorization",
        "jdbc.password",
        "adls.sas-token.account",
        "adls.connection-string.account",
        "adls.auth.shared-key.account.key",
        "gcs.oauth2.token",
        "gcs.decryption-key",
    ],
)
def test_names_of_secrets_are_masked(name: str) -> None:
    assert re.search(SECRETS, PREFIX + name)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("uri", "https://lake.example.com/v1"),
        ("warehouse", "s3://lake/warehouse"),
        ("s3.endpoint", "http://127.0.0.1:9000"),
        ("io-impl", "org.apache.iceberg.aws.s3.S3FileIO"),
    ],
)
def test_what_is_no_secret_stays_readable(name: str, value: str) -> None:
    assert not re.search(SECRETS, PREFIX + name)
    assert not re.search(SECRETS, value)


def test_a_password_in_a_url_is_masked() -> None:
    assert re.search(SECRETS, "jdbc:postgresql://lake:planted@db.example.com/lake")


def test_a_pattern_of_the_user_stays() -> None:
    assert redaction_conf(None, {}) == {REDACTION: SECRETS}
    assert redaction_conf("mine", {}) == {}
    assert redaction_conf(None, {"PYSPARK_SUBMIT_ARGS": f"--conf {REDACTION}=mine pyspark-shell"}) == {}
