"""The error of a metadata file that is missing or damaged says so, with what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest
from lake_support import Lake

from fluss_tiering.spark.maintenance.compact import compact_table

SAID = "a file of the lake seems to be missing or damaged"


def cut_off(file: Path) -> None:
    (file.parent / f".{file.name}.crc").unlink(missing_ok=True)
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def write_text(file: Path) -> None:
    (file.parent / f".{file.name}.crc").unlink(missing_ok=True)
    file.write_bytes(b"no metadata" * 100)


def flip(file: Path) -> None:
    """Change bytes behind Hadoop's back, which has a checksum of a local file beside it."""
    content = bytearray(file.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 8] = bytes(each ^ 0x55 for each in content[middle : middle + 8])
    file.write_bytes(content)


def files_of(lake: Any) -> dict[str, Path]:
    """Return each kind of metadata file of the current snapshot."""
    table = lake.java_table
    snapshot = table.currentSnapshot()
    locations = {
        "metadata file": table.operations().current().metadataFileLocation(),
        "manifest list": snapshot.manifestListLocation(),
        "manifest": snapshot.allManifests(table.io())[0].path(),
    }
    return {kind: Path(urlparse(location).path) for kind, location in locations.items()}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("spoil", [Path.unlink, cut_off, write_text, flip])
@pytest.mark.parametrize("kind", ["metadata file", "manifest list", "manifest"])
def test_the_error_says_what_to_do(spark, tmp_path: Path, kind: str, spoil: Callable[[Path], None]):  # E33
    lake = Lake(spark, tmp_path, {"k": "INT NOT NULL", "v": "INT"}, ("k",))
    for number in range(5):
        lake.commit(lake.batch([{"k": number, "v": 1}]))
    spoil(files_of(lake.open())[kind])

    error = compact_table(spark, lake.table, min_input_files=2).error
    assert error is not None
    assert error.startswith(SAID)
