"""Names that are nearly one of ours: in the options of Spark's source, and in general."""

from __future__ import annotations

import pytest

from cases import cases
from fluss_tiering.client.misspelled import meant
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.spark.source.options import SourceOptions

EXTRA = ["timeout", "token_file", "tls", "tls_ca", "tls_cert", "tls_key", "allow_insecure"]
OPTIONS = {"table": "shop.orders", "tokenFile": "/token", "maxPartitionBytes": "5", "acceptsFilters": "true"}


@cases(
    ("name", "known"),
    [
        ("tlsca", "tls_ca"),
        ("TLS-CA", "tls_ca"),
        ("tls_certs", "tls_cert"),
        ("tokenfile", "token_file"),
        ("tokken_file", "token_file"),
        ("time_out", "timeout"),
        ("allow_unsecure", "allow_insecure"),
        ("pool", None),
        ("region_name", None),
        ("retries", None),
    ],
)
def test_a_name_is_near_to_at_most_one(name: str, known: str | None) -> None:
    assert meant(name, EXTRA) == known


@cases(
    ("name", "expected"),
    [
        ("token_file", '"tokenFile"'),
        ("tls_ca", '"tlsCa"'),
        ("tables", '"table"'),
        ("maxPartitionByte", '"maxPartitionBytes"'),
        ("tlsAuthority", "one of server, table, "),
        ("tokens", "one of server, table, "),
    ],
)
def test_the_source_refuses_an_option_that_looks_like_one_of_its_own(name: str, expected: str) -> None:
    with pytest.raises(FlussTieringError) as refused:
        SourceOptions.read({**OPTIONS, name: "x"}, {})
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert refused.value.message.startswith(f'"{name}" is no option: expected {expected}')


def test_the_source_ignores_options_of_spark() -> None:
    assert SourceOptions.read({**OPTIONS, "path": "/x", "mergeSchema": "true"}, {}).table == "shop.orders"
