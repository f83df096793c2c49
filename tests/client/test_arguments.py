"""Arguments that no request can hold are told as every other wrong argument, by each method of both clients."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from fluss_tiering.client import AsyncTieringClient, TieringClient
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket, TablePath, WriteKind

_NOWHERE = "127.0.0.1:1"
_PATH = TablePath("db", "t")
_HUGE = 2**63
_ROWS = pa.table({"a": [1]})

Wrong = Callable[[TieringClient], object]

WRONG: dict[str, Wrong] = {
    "a duration beyond the range": lambda c: c.acquire_lease("x", _HUGE, {}),
    "a duration with a fraction": lambda c: c.acquire_lease("x", 1.5, {}),  # type: ignore[arg-type]
    "an id that is no Unicode text": lambda c: c.acquire_lease("\ud800", 1, {}),
    "snapshots that are None": lambda c: c.acquire_lease("x", 1, None),  # type: ignore[arg-type]
    "snapshots of no bucket": lambda c: c.acquire_lease("x", 1, {"a": 1}),  # type: ignore[dict-item]
    "a snapshot id that is a text": lambda c: c.acquire_lease("x", 1, {TableBucket(1, 0): "1"}),  # type: ignore[dict-item]
    "renewals in a list": lambda c: c.renew_leases(["a"]),  # type: ignore[arg-type]
    "a token beyond the range": lambda c: c.release_lease("x", [], attempt_token=_HUGE),
    "buckets that are None": lambda c: c.release_lease("x", None),  # type: ignore[arg-type]
    "buckets that are numbers": lambda c: c.release_lease("x", [1]),  # type: ignore[list-item]
    "a token that is a text": lambda c: c.drop_lease("x", attempt_token="1"),  # type: ignore[arg-type]
    "an id that is a number": lambda c: c.list_leases(1),  # type: ignore[arg-type]
    "a database that is a number": lambda c: c.list_tables(1),  # type: ignore[arg-type]
    "a definition that is a dict": lambda c: c.create_table(_PATH, {}),  # type: ignore[arg-type]
    "an option that is a number": lambda c: c.alter_table(_PATH, {"a": 1}),  # type: ignore[dict-item]
    "a table without a name": lambda c: c.drop_table(None),  # type: ignore[arg-type]
    "values of a partition that are numbers": lambda c: c.drop_partition(_PATH, [1]),  # type: ignore[list-item]
    "a number for a list": lambda c: c.get_tables(7),  # type: ignore[arg-type]
    "one path for a list": lambda c: c.get_tables("db.t"),  # type: ignore[arg-type]
    "no paths": lambda c: c.get_tables(None),  # type: ignore[arg-type]
    "one path for a list of tables with buckets": lambda c: c.list_buckets("db.t"),  # type: ignore[arg-type]
    "one path for a list to snapshot": lambda c: c.take_kv_snapshots("db.t"),  # type: ignore[arg-type]
    "a token for no table": lambda c: c.create_read_token(None),  # type: ignore[arg-type]
    "a snapshot without its id": lambda c: c.kv_snapshot_metadata([1]),  # type: ignore[list-item]
    "a log of no bucket": lambda c: list(c.fetch_log(None, 0, 1)),  # type: ignore[arg-type]
    "an offset beyond the range": lambda c: list(c.fetch_log(TableBucket(1, 0), 0, _HUGE)),
    "a key that is a text": lambda c: list(c.fetch_kv_snapshot(TableBucket(1, 0), 0, "a", None)),  # type: ignore[arg-type]
    "a scan of nothing": lambda c: c.scan(None),  # type: ignore[arg-type]
    "a limit that is a text": lambda c: c.scan(_PATH, limit="1"),  # type: ignore[arg-type]
    "a size with a fraction": lambda c: c.scan(_PATH, batch_size_bytes=1.5),  # type: ignore[arg-type]
    "a heartbeat of no round": lambda c: c.heartbeat(tiering=[1]),  # type: ignore[list-item]
    "one path for a list to claim": lambda c: c.claim_tables("db.t", "x", None, "d"),  # type: ignore[arg-type]
    "a driver that is a number": lambda c: c.claim_tables([_PATH], "x", None, 3),  # type: ignore[arg-type]
    "no reason": lambda c: c.cancel_tiering("x", None, None),  # type: ignore[arg-type]
    "a status of a number": lambda c: c.list_tiering_statuses(1),  # type: ignore[arg-type]
    "one path for a list to watch": lambda c: next(c.watch_tiering_statuses("db.t")),  # type: ignore[arg-type]
    "one path for a list to resume": lambda c: c.resume_tables("db.t"),  # type: ignore[arg-type]
    "a limit beyond the range": lambda c: c.list_tiering_rounds(limit=10**30),
    "an outcome of a token that is a text": lambda c: c.lease_outcome("x", "1"),  # type: ignore[arg-type]
    "offsets of no table": lambda c: c.prepare_lake_snapshot(None, 1, {}),  # type: ignore[arg-type]
    "a commit of no table": lambda c: c.commit_lake_snapshot(None, 1, 1, {}, "", ""),  # type: ignore[arg-type]
    "a lake snapshot of no table": lambda c: c.lake_snapshot(None),  # type: ignore[arg-type]
    "a table for a list of batches": lambda c: list(c.write_rows(_PATH, WriteKind.UPSERT, _ROWS)),
    "rows that are None": lambda c: list(c.write_rows(_PATH, WriteKind.UPSERT, None)),  # type: ignore[arg-type]
    "rows that are dicts": lambda c: list(c.write_rows(_PATH, WriteKind.UPSERT, [{"a": 1}])),  # type: ignore[list-item]
    "an unknown kind": lambda c: list(c.write_rows(_PATH, "MERGE", [_ROWS])),  # type: ignore[arg-type]
}
"""A wrong use of each method that sends something."""

_WITHOUT_ARGUMENTS = {"describe_storage", "cluster_health", "close", "security_of_executors"}


@pytest.fixture
def nowhere() -> Iterator[TieringClient]:
    with TieringClient(_NOWHERE) as client:
        yield client


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_refused_before_anything_is_sent(nowhere: TieringClient, name: str) -> None:
    with pytest.raises(FlussTieringError) as refused:
        WRONG[name](nowhere)
    # The server does not run: what is sent ends in UNAVAILABLE.
    assert refused.value.code in {ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_ROWS}
    assert len(refused.value.message) < 600


def test_each_method_is_among_the_wrong_uses() -> None:
    called = {name for wrong in WRONG.values() for name in wrong.__code__.co_names}
    methods = {name for name, _ in inspect.getmembers(TieringClient, inspect.isfunction) if not name.startswith("_")}
    assert methods - called == _WITHOUT_ARGUMENTS


def test_the_argument_is_shown_and_cut(nowhere: TieringClient) -> None:
    with pytest.raises(FlussTieringError) as refused:
        nowhere.acquire_lease("nightly", _HUGE, {})
    assert "acquire_lease" in refused.value.message
    assert f"duration_ms={_HUGE}" in refused.value.message
    with pytest.raises(FlussTieringError) as long:
        nowhere.list_leases("x" * 10_000 + "\ud800")
    assert len(long.value.message) < 600


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), None, "30", True])
def test_a_timeout_that_is_no_time_is_refused(timeout: float) -> None:
    with pytest.raises(FlussTieringError, match="expected a number of seconds above 0"):
        TieringClient(_NOWHERE, timeout=timeout)


@pytest.mark.parametrize("target", [None, 9133, b"127.0.0.1:1"])
def test_an_address_that_is_no_text_is_refused(target: str) -> None:
    with pytest.raises(FlussTieringError, match="expected a text HOST:PORT"):
        TieringClient(target)


@pytest.mark.parametrize(
    "call",
    [
        lambda c: c.list_tables(),
        lambda c: next(c.watch_tiering_statuses()),
        lambda c: list(c.write_rows(_PATH, WriteKind.UPSERT, [_ROWS])),
        lambda c: list(c.fetch_log(TableBucket(1, 0), 0, 1)),
        lambda c: c.scan(_PATH),
    ],
)
def test_a_closed_client_says_so(call: Wrong) -> None:
    client = TieringClient(_NOWHERE)
    client.close()
    with pytest.raises(FlussTieringError, match="was closed: make a new one") as refused:
        call(client)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    client.close()


async def test_a_closed_asyncio_client_says_so() -> None:
    client = AsyncTieringClient(_NOWHERE)
    with pytest.raises(FlussTieringError, match="do not fit"):
        await client.lease_outcome("x", _HUGE)
    await client.close()
    with pytest.raises(FlussTieringError, match="was closed: make a new one"):
        await client.list_leases()
    with pytest.raises(FlussTieringError, match="was closed: make a new one"):
        await anext(client.watch_tiering_statuses())
