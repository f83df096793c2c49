"""Arguments that would mean something else to the server, names that are nearly ours, and clients that were closed."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from cases import cases
from fluss_tiering.client import AsyncTieringClient, TieringClient
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.misspelled import meant
from fluss_tiering.model.table import TableBucket, TablePath, WriteKind
from fluss_tiering.spark.source.options import SourceOptions

_NOWHERE = "127.0.0.1:1"
_PATH = TablePath("db", "t")
_ROWS = pa.table({"a": [1]})


def test_a_text_in_the_place_of_a_list_is_no_list_of_tables() -> None:
    with TieringClient(_NOWHERE) as client, pytest.raises(FlussTieringError, match="'d' is not a table path"):
        client.get_tables("db.t")  # type: ignore[arg-type]


@cases("timeout", [0, -1, float("nan"), float("inf")])
def test_a_timeout_that_is_no_time_is_refused(timeout: float) -> None:
    with pytest.raises(FlussTieringError, match="expected a number of seconds above 0"):
        TieringClient(_NOWHERE, timeout=timeout)


@cases(
    "call",
    [
        lambda c: c.list_tables(),
        lambda c: next(c.watch_tiering_statuses()),
        lambda c: list(c.write_rows(_PATH, WriteKind.UPSERT, [_ROWS])),
        lambda c: list(c.fetch_log(TableBucket(1, 0), 0, 1)),
        lambda c: c.scan(_PATH),
    ],
)
def test_a_closed_client_says_so(call: Callable[[TieringClient], object]) -> None:
    client = TieringClient(_NOWHERE)
    client.close()
    with pytest.raises(FlussTieringError, match="was closed: make a new one") as refused:
        call(client)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    client.close()


async def test_a_closed_asyncio_client_says_so() -> None:
    client = AsyncTieringClient(_NOWHERE)
    await client.close()
    with pytest.raises(FlussTieringError, match="was closed: make a new one"):
        await client.list_leases()
    with pytest.raises(FlussTieringError, match="was closed: make a new one"):
        await anext(client.watch_tiering_statuses())


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
