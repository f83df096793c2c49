"""An index in an object store."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from key_index_support import PLACE, random_hashes

from fluss_tiering.lake.key_index import (
    Entries,
    IndexStore,
    KeyIndex,
    RunWriter,
    UnusableIndexError,
    read_state,
    remove_unreferenced,
    stored_states,
    write_run,
    write_state,
)
from fluss_tiering.lake.object_store import ExpiredCredentialsError
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from needs import needs
from s3_support import ACCESS_KEY, REGION, SECRET_KEY, S3Server
from vending_support import S3Gate, Session

BUCKET = "lake"


@pytest.fixture(scope="module")
@needs("system")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with pytest.MonkeyPatch.context() as patched, S3Server(tmp_path_factory.mktemp("s3")) as running:
        # The server does not accept checksums after the body, which clients add by default.
        patched.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
        running.filesystem().create_dir(BUCKET)
        yield running


def store_of(s3: S3Server) -> IndexStore:
    properties = {
        "s3.access-key-id": ACCESS_KEY,
        "s3.secret-access-key": SECRET_KEY,
        "s3.endpoint": f"http://{s3.endpoint}",
        "s3.region": REGION,
    }
    return IndexStore(f"s3://{BUCKET}/db/table/key-index", properties)


def test_an_index_in_an_object_store(s3: S3Server):
    store = store_of(s3)
    assert read_state(store, PLACE, 5) is None
    assert [each.snapshot_id for each in stored_states(store, PLACE)] == []
    hashes, count = random_hashes(200_000), 100_000
    with RunWriter(store, PLACE, buffer_bytes=1 << 20) as writer:
        writer.add("a", hashes.slice(0, count), np.arange(count))
        runs = [writer.close()]
    runs.append(write_run(store, PLACE, Entries.of_file("b", hashes.slice(count, None))))
    write_state(store, PLACE, 5, runs)

    reader = pickle.loads(pickle.dumps(store_of(s3)))
    read = read_state(reader, PLACE, 5)
    assert read is not None
    before = reader.counts.requests
    matches = KeyIndex(reader, PLACE, read).find(hashes.take(np.arange(0, 2 * count, 1000)), {"a", "b"})
    assert matches.positions.tolist() == [*range(0, count, 1000)] * 2
    assert matches.files.tolist() == [0] * 100 + [1] * 100
    # Fence pages, and requests that read the gaps between 200 blocks up to a limit.
    assert reader.counts.requests - before <= 2 * (1 + 100)
    assert reader.counts.bytes < sum(run.size for run in runs)

    unnamed = write_run(store, PLACE, Entries.of_file("c", hashes.slice(0, 10)))
    assert [each.snapshot_id for each in stored_states(store, PLACE)] == [5]
    assert remove_unreferenced(store, PLACE, {5}, datetime.now(UTC) - timedelta(hours=1)) == []
    assert remove_unreferenced(store, PLACE, {5}, datetime.now(UTC) + timedelta(hours=1)) == [unnamed.name]

    objects = s3.objects / BUCKET / "db" / "table" / "key-index"
    run = objects / read[0].name
    run.write_bytes(run.read_bytes()[:1000])
    with pytest.raises(
        UnusableIndexError, match=r"s3://lake/db/table/key-index/[0-9a-f-]+/3/run-.*(cannot be read|ends before)"
    ):
        read_state(store, PLACE, 5)
    run.unlink()
    with pytest.raises(UnusableIndexError, match="is missing"):
        read_state(store, PLACE, 5)


@pytest.fixture
def gate() -> Iterator[S3Gate]:
    with S3Gate("127.0.0.1:1") as running:
        yield running


def test_what_may_not_be_read_is_unusable(gate: S3Gate):
    """S3 also refuses what does not exist, unless the session may list the bucket."""
    session = Session()
    gate.refuse_with = (403, "AccessDenied", "Access Denied")
    store = IndexStore("s3://lake/index", {**session.properties, "s3.endpoint": gate.endpoint, "s3.region": REGION})
    with pytest.raises(
        UnusableIndexError, match=f"s3://lake/index/{PLACE.folder}/state-5 cannot be read .*ACCESS_DENIED"
    ) as found:
        read_state(store, PLACE, 5)
    assert session.token not in str(found.value)
    assert session.properties["s3.secret-access-key"] not in str(found.value)
    assert session.token not in repr(store)


def test_what_may_not_be_written_is_an_error_of_the_storage(gate: S3Gate):
    gate.refuse_with = (403, "AccessDenied", "Access Denied")
    keys = {"s3.access-key-id": "key", "s3.secret-access-key": "secret"}
    store = IndexStore("s3://lake/index", {**keys, "s3.endpoint": gate.endpoint, "s3.region": REGION})
    with pytest.raises(
        FlussTieringError, match=f"could not write, list or delete s3://lake/index/{PLACE.folder}/"
    ) as refused:
        write_state(store, PLACE, 5, [])
    assert refused.value.code is ErrorCode.STORAGE


def test_expired_credentials_are_no_damage(gate: S3Gate):
    session = Session(ended=True, expires_ms=5000)
    store = IndexStore("s3://lake/index", {**session.properties, "s3.endpoint": gate.endpoint, "s3.region": REGION})
    for work in (lambda: read_state(store, PLACE, 5), lambda: write_state(store, PLACE, 5, [])):
        with pytest.raises(ExpiredCredentialsError, match="they expired at"):
            work()
    assert not gate.requests
