"""Secrets are masked, and texts are cut without breaking a character: seed S11."""

from __future__ import annotations

import time
from urllib.parse import quote_from_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import cases
from fluss_tiering.model.error_text import MAX_HEADER_BYTES, clean_error, header_text, mask_secrets, sendable

SECRET = "hunter2/+=abc"


@cases(
    "text",
    [
        f"password={SECRET}",
        f"s3.secret-access-key = {SECRET}, region=eu",
        f'{{"client.secret": "{SECRET}", "x": 1}}',
        f"{{'oauth2.token': '{SECRET}'}}",
        f"sasl.password: {SECRET}",
        f"fs.azure.account.key.lake.dfs.core.windows.net={SECRET}",
        f"jdbc:postgresql://lake:{SECRET.replace('/', '')}@db:5432/catalog failed",
        f"Authorization: Bearer {SECRET}",
        f"https://lake/x?sig={SECRET}&se=2030",
        f"X-Amz-Signature={SECRET}",
        f'"tokens": ["a", "{SECRET}"], "x": 1',
        f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----",
        f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}",
        f"postgresql+psycopg2://lake:{SECRET}@db/catalog",
        f"password=***{SECRET}",
        f'token="x"{SECRET}',
        f's3.secret-access-key="{SECRET}',
        f"s3.secret-access-key=){SECRET}",
        f"tokens.json: password={SECRET}",
        f"attempt_token=1 token={SECRET}",
        f"attempt_token=token={SECRET}",
    ],
)
def test_secrets_are_masked(text: str) -> None:  # S11
    masked = mask_secrets(text)
    assert SECRET not in masked
    assert SECRET.replace("/", "") not in masked
    assert "***" in masked


@cases(
    "text",
    [
        "attempt token 7 of lease X was superseded; attempt_token=8",
        "the primary key: a, b; bucket.key=id",
        "https://lake.example:8181/v1/config failed",
        "unexpected end of file",
        "x.key is not the key of the certificate, or it has a password (KEY_VALUES_MISMATCH)",
        "may not call CreateReadToken: it may only read",
        "could not read /etc/fluss/tokens.json: Is a directory",
        "FLUSS_TIERING_TOKENS_FILE: the path is empty, and token-file: too",
        "https://lake.example:8181/v1/config failed for a@b",
    ],
)
def test_other_texts_stay(text: str) -> None:  # S11
    assert mask_secrets(text) == text


@pytest.mark.parametrize("key", ["AKIAIOSFODNN7EXAMPLE", "ASIAIOSFODNN7EXAMPLE"])
def test_ids_of_access_keys_are_masked_wherever_they_stand(key: str) -> None:  # S11, D17
    assert mask_secrets(f"the key {key} does not exist ({key})") == "the key *** does not exist (***)"
    assert mask_secrets(f"X{key}") == f"X{key}", "a longer word is something else"


def test_a_password_with_at_signs_is_masked_to_its_end() -> None:
    assert mask_secrets("postgresql://tier:S3cr@tPw@db:5432/x of a@b") == "postgresql://tier:***@db:5432/x of a@b"
    assert mask_secrets("https://u:p@host/x@y") == "https://u:***@host/x@y"


def test_what_is_around_a_secret_stays() -> None:  # S11
    assert mask_secrets("jdbc:postgresql://lake:pw@db/x?user=lake") == "jdbc:postgresql://lake:***@db/x?user=lake"
    assert mask_secrets("s3.secret-access-key=abc, region=eu") == "s3.secret-access-key=***, region=eu"


@given(st.text(max_size=300), st.integers(1, 200))
def test_texts_are_cut_between_characters(text: str, limit: int) -> None:  # S11
    cut = clean_error(text, limit)
    assert len(cut) <= limit
    masked = mask_secrets(text)
    assert cut == masked if len(masked) <= limit else cut[:-1] == masked[: limit - 1]


@given(st.text(st.characters(), max_size=300), st.integers(1, 200))
def test_any_text_of_python_can_be_sent(text: str, limit: int) -> None:  # D14
    sent = sendable(text, limit)
    sent.encode()
    assert len(sent) <= limit


@cases("unit", ["a", "表", "é", "\N{GRINNING FACE}", "%", "\n", "\0", "\udc80", "a表"])
def test_a_text_fits_into_a_header_whatever_its_letters(unit: str) -> None:  # D14
    text = unit * 3000
    sent = header_text(text, 2048)
    in_header = quote_from_bytes(sent.encode(), safe="".join(chr(each) for each in range(0x20, 0x7F) if each != 0x25))
    assert len(in_header) <= MAX_HEADER_BYTES
    # As much of it as fits: no more than one letter and the mark of the cut are missing.
    assert len(sent) == 2048 or len(in_header) > MAX_HEADER_BYTES - 24
    assert sent.endswith("…")
    assert header_text("short " + unit, 2048) == sendable("short " + unit, 2048)


def test_a_secret_is_masked_before_the_cut() -> None:  # S11
    assert "hun" not in clean_error("x" * 10 + " password=hunter2", 23)


@cases("unit", ["a", "token", "token=", "a://b:", "a.b ", "-----BEGIN PRIVATE KEY-----"])
def test_hostile_texts_take_no_time(unit: str) -> None:
    # The CPU time, so that other work on the machine does not count.
    started = time.thread_time()
    mask_secrets(unit * (1_000_000 // len(unit)))
    assert time.thread_time() - started < 5
