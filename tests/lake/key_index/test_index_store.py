"""What a store of indexes reads, by how many requests, and an index in an object store."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

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

MIB = 1 << 20
SIZE = 12 * MIB
CONTENT = np.random.default_rng(1).integers(0, 256, SIZE, np.uint8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store")
    (path / "file").write_bytes(CONTENT.tobytes())
    return path


def store_in(folder: Path, *, remote: bool = False) -> IndexStore:
    store = IndexStore(str(folder))
    # A folder that is read as an object store is.
    store.is_local = not remote
    return store


@pytest.mark.parametrize(
    ("remote", "starts", "length", "requests", "size"),
    [
        (False, [0], 100, 1, 100),
        (False, [SIZE - 100], 100, 1, 100),
        (False, [0, 100, 200], 100, 1, 300),
        # Small gaps are read as well, and larger ones are not.
        (False, [7, 7 + 100 + 1024], 100, 1, 1224),
        (False, [7, 7 + 100 + 1025], 100, 2, 200),
        (True, [7, 7 + 100 + 1025], 100, 1, 1225),
        (True, [0, 100 + 256 * 1024], 100, 1, 200 + 256 * 1024),
        (True, [0, 101 + 256 * 1024], 100, 2, 200),
        # Of gaps, a MiB is read: five of 200,000 bytes, or first of all those that are smaller.
        (True, [n * 200_100 for n in range(8)], 100, 3, 800 + 5 * 200_000),
        (True, [0, 200_100, 400_200, 600_300, 800_400, 1_000_500, 1_040_600, 1_080_700], 100, 2, 880_800),
        # As much as was asked for may be read besides.
        (True, [n * 450_000 for n in range(10)], 200_000, 2, 4_000_000),
        # Nothing that is asked for at once is longer than 4 MiB.
        (False, [n * 65_536 for n in range(192)], 65_536, 3, 12 * MIB),
    ],
)
def test_ranges_that_are_close_are_read_together(
    folder: Path, remote: bool, starts: list[int], length: int, requests: int, size: int
):
    store = store_in(folder, remote=remote)
    content = store.read("file", np.array(starts), length)
    assert np.array_equal(content, np.concatenate([CONTENT[start : start + length] for start in starts]))
    assert store.counts.requests == requests
    assert store.counts.bytes == size
    assert store.counts.bytes <= len(starts) * length + max(MIB, len(starts) * length)


@pytest.mark.parametrize("remote", [False, True])
def test_many_ranges_are_read_in_threads(folder: Path, remote: bool):
    store = store_in(folder, remote=remote)
    starts = np.arange(3000) * 4000 + np.random.default_rng(2).integers(0, 3900, 3000)
    for times in (1, 2):
        content = store.read("file", starts, 100)
        assert np.array_equal(content.reshape(3000, 100), CONTENT[starts[:, None] + np.arange(100)])
        assert store.counts.bytes % times == 0
    assert 2 * 300_000 <= store.counts.bytes <= 2 * (300_000 + MIB)
    assert store.map(lambda number: number + 1, range(100)) == list(range(1, 101))


@pytest.mark.parametrize("remote", [False, True])
def test_a_file_that_is_too_short(folder: Path, remote: bool):
    store = store_in(folder, remote=remote)
    said = re.escape(f"{folder}/file ends before byte {SIZE + 1}")
    with pytest.raises(UnusableIndexError, match=said):
        store.read("file", np.array([0, MIB, 2 * MIB, SIZE - 99]), 100)
    with pytest.raises(UnusableIndexError, match=re.escape(f"{folder}/other is missing")):
        store.read("other", np.array([0]), 100)
    assert store.read_file("other") is None


def test_whole_files(folder: Path):
    store = store_in(folder)
    assert store.read_file("file") == CONTENT.tobytes()
    assert (store.counts.requests, store.counts.bytes) == (1, SIZE)
    assert not len(store.read("file", np.empty(0, np.int64), 100))
    (found,) = store.files(".")
    assert (found.name, found.size) == ("./file", SIZE)
    assert store.files("none") == []
    # Somebody else deletes, too.
    store.delete("none")


def test_a_file_that_is_not_finished_is_deleted(tmp_path: Path):
    store = store_in(tmp_path)

    def write() -> None:
        with store.writing("new") as file:
            file.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write()
    assert not list(tmp_path.iterdir())


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
