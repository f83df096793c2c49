"""The error of a metadata file that is missing or damaged names it, and comes without Iceberg's long retries."""

from __future__ import annotations

import re
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest
from lake_support import Lake
from table_support import commit_of, piece

from fluss_tiering.lake.iceberg.repair.live_files import live_entries
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.spark.maintenance.compact import CompactionOptions, compact_table
from fluss_tiering.spark.maintenance.repair import repair_table

REMEDY = "restore it from a backup, or from an older version if its store keeps versions"
FORMS = {"metadata file": "JSON", "manifest list": "Avro", "manifest": "Avro"}


def lose(file: Path) -> str:
    file.unlink()
    return "is missing: "


def empty(file: Path) -> str:
    return _written(file, b"")


def cut_off(file: Path) -> str:
    said = _written(file, file.read_bytes()[: file.stat().st_size // 2])
    return said if file.suffix == ".json" else f"{said}it ends too early: "


def write_text(file: Path) -> str:
    return _written(file, b"no metadata" * 100)


def flip(file: Path) -> str:
    """Change bytes behind Hadoop's back, which has a checksum of a local file beside it."""
    content = bytearray(file.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 8] = bytes(each ^ 0x55 for each in content[middle : middle + 8])
    file.write_bytes(content)
    return "is damaged: "


def _written(file: Path, content: bytes) -> str:
    (file.parent / f".{file.name}.crc").unlink(missing_ok=True)
    file.write_bytes(content)
    return "is damaged: "


def files_of(lake: Any) -> dict[str, str]:
    """Return the location of each kind of metadata file of the current snapshot."""
    table = lake.java_table
    snapshot = table.currentSnapshot()
    return {
        "metadata file": metadata_file_of(lake),
        "manifest list": snapshot.manifestListLocation(),
        "manifest": snapshot.allManifests(table.io())[0].path(),
    }


def metadata_file_of(lake: Any) -> str:
    return str(lake.java_table.operations().current().metadataFileLocation())


def path_of(location: str) -> Path:
    return Path(urlparse(location).path)


def named(kind: str, location: str, said: str) -> str:
    """Return how an error begins: with what is wrong, since columns cut the end."""
    what, _, why = said.removeprefix("is ").partition(": ")
    return f"{kind} {what}: {location}: {why}"


# E33
@pytest.mark.sampled(2)
@pytest.mark.parametrize("spoil", [lose, empty, cut_off, write_text, flip])
@pytest.mark.parametrize("kind", FORMS)
def test_the_file_is_named_with_what_to_do(spark, catalogs, keyed, kind: str, spoil: Callable[[Path], str]):
    lake = catalogs.open_table(keyed)
    lake.commit([piece(lake, {1: "a"})], commit_of(1))
    location = files_of(catalogs.open_table(keyed))[kind]
    said = spoil(path_of(location))

    with pytest.raises(FlussTieringError) as raised, catalogs.naming_unreadable_metadata(keyed):
        live_entries(catalogs.open_table(keyed).java_table)
    assert raised.value.code is ErrorCode.CORRUPT_DATA
    assert raised.value.message.startswith(named(kind, location, said))
    assert raised.value.message.endswith(f"expected the {FORMS[kind]} file that the lake table refers to; {REMEDY}")

    for done in (repair_table(spark, keyed), compact_table(spark, keyed, CompactionOptions())):
        assert done.error is not None
        assert done.error.startswith(named(kind, location, said))
    # A round gets the same error.
    failed = FlussTieringError(ErrorCode.STORAGE, "IOException: could not commit")
    assert str(catalogs.explained(keyed, failed)) == str(raised.value)


@pytest.mark.parametrize("spoil", [lose, empty, cut_off])
def test_the_metadata_file_of_a_hadoop_catalog_is_named(spark, tmp_path: Path, spoil: Callable[[Path], str]):
    lake = Lake(spark, tmp_path, {"k": "INT"})
    location = metadata_file_of(lake.open())
    said = spoil(path_of(location))
    with pytest.raises(FlussTieringError) as raised:
        lake.open()
    assert raised.value.code is ErrorCode.CORRUPT_DATA
    assert raised.value.message.startswith(named("metadata file", location, said))


def test_other_failures_stay_what_they_are(catalogs, keyed):
    lake = catalogs.open_table(keyed)
    lake.commit([piece(lake, {1: "a"})], commit_of(1))
    failures = [
        FlussTieringError(ErrorCode.STORAGE, "IOException: the disk is full"),
        FlussTieringError(ErrorCode.LAKE_CONFLICT, "somebody else"),
        FlussTieringError(ErrorCode.STORAGE, "the lake cannot be reached: ConnectException: refused"),
        ValueError("x"),
    ]
    for failure in failures:
        assert catalogs.explained(keyed, failure) is failure
    location = files_of(lake := catalogs.open_table(keyed))["manifest"]
    lose(path_of(location))
    for failure in failures[1:]:
        assert catalogs.explained(keyed, failure) is failure
    assert lake.base() is not None


def test_a_catalog_that_could_not_be_opened_is_asked_once(catalogs, keyed):
    asked = []

    class Broken(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_error(500)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Broken) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        properties = {"type": "rest", "name": "broken", "uri": f"http://127.0.0.1:{server.server_port}"}
        table = replace(keyed, lake_catalog_properties={**properties, "rest.client.max-retries": "1"})
        with pytest.raises(FlussTieringError) as raised:
            catalogs.open_table(table)
        before = len(asked)
        assert before > 0
        assert catalogs.explained(table, raised.value) is raised.value
        server.shutdown()
    assert len(asked) == before


def test_a_manifest_of_an_older_snapshot_is_looked_at_if_the_failure_names_one(catalogs, keyed):
    lake = catalogs.open_table(keyed)
    lake.commit([piece(lake, {1: "a"})], commit_of(1))
    older = files_of(catalogs.open_table(keyed))["manifest list"]
    lake = catalogs.open_table(keyed)
    lake.commit([piece(lake, {2: "b"})], commit_of(2))
    lose(path_of(older))

    other = FlussTieringError(ErrorCode.STORAGE, "IOException: no space left")
    assert catalogs.explained(keyed, other) is other
    naming = FlussTieringError(ErrorCode.STORAGE, f"FileNotFoundException: {older}")
    assert str(catalogs.explained(keyed, naming)).startswith(f"manifest list missing: {older}: ")


def loads(spark: Any) -> list[str]:
    """Return the loads of tables that are still under way."""
    threads = spark._jvm.java.lang.Thread.getAllStackTraces().keySet().toString()
    return re.findall(r"Thread\[[^\[]*load db\.t[,\]]", threads)


def test_a_load_that_cannot_succeed_is_not_waited_for(spark, catalogs, keyed):
    """Iceberg's JDBC catalog would try for 95 seconds. Its load is cancelled after two."""
    location = metadata_file_of(catalogs.open_table(keyed))
    empty(path_of(location))
    before = time.monotonic()
    with pytest.raises(FlussTieringError) as raised:
        catalogs.find_table(keyed)
    assert raised.value.message.startswith(f"metadata file damaged: {location}: ")
    assert time.monotonic() - before < 30
    while loads(spark):
        assert time.monotonic() - before < 60, "it goes on with its tries"
        time.sleep(0.2)


def test_a_load_that_may_succeed_is_waited_for(catalogs, keyed, tmp_path: Path):
    catalogs.open_table(keyed)
    with sqlite3.connect(tmp_path / "catalog.db", check_same_thread=False, isolation_level=None) as catalog:
        catalog.execute("BEGIN EXCLUSIVE")
        freed = threading.Timer(2.3, lambda: catalog.execute("ROLLBACK"))
        freed.start()
        before = time.monotonic()
        assert catalogs.open_table(keyed).base() is None
        assert time.monotonic() - before > 2
        freed.join()
