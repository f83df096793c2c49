"""Moves a lake of files to another folder: Iceberg's metadata and position deletes name files by absolute paths.

The metadata is rewritten in place, file by file, and each file in one step. What already names the new folder stays as
it is, so a relocation that was interrupted is simply run again. The lake keeps a note of the folders that it has been
in: a file that is copied from there later, or comes from a backup, still names one of them.
"""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fluss_tiering.lake.delete_formats import PATH_ID
from fluss_tiering.lake.metadata_files import SCHEME, avro_content, missing_files, path_of, read_avro, read_json
from fluss_tiering.lake.moved_deletes import move_paths
from fluss_tiering.model.errors import ErrorCode, FlussTieringError

CATALOG_FILE: Final = "catalog.db"
_NOTE: Final = "former-folders.json"
_WAREHOUSE: Final = "warehouse"
_LOCATION: Final = re.compile(rf"{SCHEME}(/.*)/{_WAREHOUSE}/.*")
_LOCATION_COLUMNS: Final = ("metadata_location", "previous_metadata_location")
_POSITION_DELETES: Final = 1


@dataclass(frozen=True, slots=True)
class Relocation:
    """What a relocation changed.

    Attributes:
        before: The lake's folder that the metadata named before.
        tables: How many tables of the catalog were changed.
        files: How many files of metadata, and of deletes by position, were rewritten.
        missing: The files that the newest snapshots need and that are not there, by the names of their tables.
    """

    before: Path
    tables: int
    files: int
    missing: Mapping[str, Sequence[Path]]


def named_lake_folder(lake_dir: Path) -> Path | None:
    """Return the folder that the lake's catalog names instead of its own; None if it names its own.

    Args:
        lake_dir: The folder with the catalog's SQLite file and the warehouse.

    Raises:
        FlussTieringError: CORRUPT_DATA if the catalog cannot be read.
    """
    for _, _, _, location, _ in _catalog_rows(lake_dir):
        match = _LOCATION.fullmatch(location or "")
        if match and Path(match[1]).name == lake_dir.name and not _same(Path(match[1]), lake_dir):
            return Path(match[1])
    return None


def relocate_lake(lake_dir: Path) -> Relocation | None:
    """Let the metadata of a lake name the folder that the lake is in; return None if it does so and lacks no file.

    Args:
        lake_dir: The folder with the catalog's SQLite file and the warehouse. Nobody may use it meanwhile.

    Raises:
        FlussTieringError: INVALID_REQUEST if position deletes have a format whose paths cannot be changed;
            CORRUPT_DATA if the catalog, a file of metadata or a delete file cannot be read. What was changed before
            names the new folder, and a later run goes on.
    """
    named = named_lake_folder(lake_dir)
    former = _note_former(lake_dir, named)
    if not former:
        return None
    moved = _mover(former, lake_dir)
    deletes: set[Path] = set()

    def replace_deletes(file: Path, content: bytes) -> None:
        _replace(file, content)
        deletes.add(file)

    files = sorted((lake_dir / _WAREHOUSE).glob("**/metadata/*"))
    manifests = [file for file in files if file.suffix == ".avro" and not file.name.startswith("snap-")]
    changed = sum(
        _rewrite_avro(file, lambda record: _move_entry(record, moved, lake_dir, replace_deletes)) for file in manifests
    )
    # The lists come after the manifests, since they say how long these are.
    for file in files:
        if file.suffix == ".avro" and file.name.startswith("snap-"):
            changed += _rewrite_avro(file, lambda record: _move_manifest(record, moved))
    changed += sum(_rewrite_json(file, moved) for file in files if file.name.endswith(".metadata.json"))
    missing = {
        f"{namespace}.{table}": found
        for _, namespace, table, location, _ in _catalog_rows(lake_dir)
        if location
        and path_of(moved(location)).is_relative_to(lake_dir)
        and (found := list(missing_files(location, moved)))
    }
    done = Relocation(named or former[0], _rewrite_catalog(lake_dir, moved), changed + len(deletes), missing)
    return None if named is None and not done.files and not missing else done


def _note_former(lake_dir: Path, named: Path | None) -> list[Path]:
    """Note the folder that the lake comes from, and return all folders that it has been in, the newest first."""
    note = lake_dir / _NOTE
    try:
        noted = [Path(each) for each in json.loads(note.read_text())["folders"]] if note.is_file() else []
    except (ValueError, LookupError, TypeError) as error:
        raise FlussTieringError(
            ErrorCode.CORRUPT_DATA,
            f"{note}, the note of the folders that the lake was in, cannot be read: {error}; restore it from a backup",
        ) from error
    if named is not None and named not in noted:
        noted.insert(0, named)
        _replace(note, json.dumps({"folders": [str(each) for each in noted]}).encode())
    return [each for each in noted if not _same(each, lake_dir)]


def _same(one: Path, other: Path) -> bool:
    """Return whether both paths lead to one folder, for example by a symbolic link."""
    return one == other or (one.exists() and other.exists() and one.samefile(other))


def _catalog_rows(lake_dir: Path) -> list[tuple[str, str, str, str | None, str | None]]:
    file = lake_dir / CATALOG_FILE
    if not file.is_file():
        return []
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=30)) as connection:
            exists = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'iceberg_tables'").fetchone()
            if exists is None:
                return []
            columns = f"catalog_name, table_namespace, table_name, {', '.join(_LOCATION_COLUMNS)}"
            return connection.execute(f"SELECT {columns} FROM iceberg_tables").fetchall()  # noqa: S608 - constants
    except sqlite3.Error as error:
        raise FlussTieringError(
            ErrorCode.CORRUPT_DATA,
            f"the lake's catalog {file} cannot be read: {error}; restore it from a backup",
        ) from error


def _mover(former: Iterable[Path], after: Path) -> Callable[[str], str]:
    """Return a function that moves a location from one of these folders, and returns any other text as it is."""
    replacement = str(after.parent)
    # If the new folder lies in an old one, what was moved already begins with both.
    moved = (
        rf"(?!{re.escape(replacement)}(?:/|$))"
        if any(after.parent.is_relative_to(each.parent) for each in former)
        else ""
    )
    # If one of them lies in another, its own files begin with both.
    folders = sorted({str(each.parent) for each in former}, key=len, reverse=True)
    pattern = re.compile(rf"^({SCHEME}){moved}(?:{'|'.join(map(re.escape, folders))})(?=/|$)")
    return lambda text: (
        pattern.sub(lambda match: match[1] + replacement, text, count=1) if pattern.match(text) else text
    )


def _move_entry(
    record: dict[str, Any], moved: Callable[[str], str], lake_dir: Path, replace: Callable[[Path, bytes], None]
) -> None:
    entry = record["data_file"]
    for key in ("file_path", "referenced_data_file"):
        if isinstance(entry.get(key), str):
            entry[key] = moved(entry[key])
    if entry.get("content") == _POSITION_DELETES:
        for bounds in (entry.get("lower_bounds"), entry.get("upper_bounds")):
            _move_bound(bounds or (), moved)
        file = path_of(entry["file_path"])
        # Files that only removed entries name may be gone, and files of another folder were not moved.
        if file.is_relative_to(lake_dir) and file.is_file():
            entry["file_size_in_bytes"] = move_paths(file, moved, replace)


def _move_bound(bounds: Iterable[dict[str, Any]], moved: Callable[[str], str]) -> None:
    """Change the bound of the paths in a position delete file. Readers leave the file out by it."""
    for bound in bounds:
        if bound["key"] == PATH_ID:
            bound["value"] = moved(bound["value"].decode()).encode()


def _move_manifest(record: dict[str, Any], moved: Callable[[str], str]) -> None:
    record["manifest_path"] = moved(record["manifest_path"])
    manifest = path_of(record["manifest_path"])
    if manifest.is_file():
        record["manifest_length"] = manifest.stat().st_size


def _rewrite_avro(file: Path, change: Callable[[dict[str, Any]], None]) -> int:
    reader, records = read_avro(file)
    before = json.dumps(records, default=repr)
    for record in records:
        change(record)
    if json.dumps(records, default=repr) == before:
        return 0
    _replace(file, avro_content(reader, records))
    return 1


def _rewrite_json(file: Path, moved: Callable[[str], str]) -> int:
    before, packed = read_json(file)
    after = _moved_json(before, moved)
    if after == before:
        return 0
    text = json.dumps(after, separators=(",", ":")).encode()
    _replace(file, gzip.compress(text) if packed else text)
    return 1


def _moved_json(value: Any, moved: Callable[[str], str]) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, str):
        return moved(value)
    if isinstance(value, list):
        return [_moved_json(each, moved) for each in value]
    if isinstance(value, dict):
        return {key: _moved_json(each, moved) for key, each in value.items()}
    return value


def _rewrite_catalog(lake_dir: Path, moved: Callable[[str], str]) -> int:
    changes = list(_changed_rows(lake_dir, moved))
    try:
        _change_catalog(lake_dir, changes, moved)
    except sqlite3.Error as error:
        raise FlussTieringError(
            ErrorCode.STORAGE,
            f"the lake's catalog {lake_dir / CATALOG_FILE} cannot be changed: {error}; expected a file that this user "
            "may write. Then adopt the folder again",
        ) from error
    return len(changes)


def _change_catalog(lake_dir: Path, changes: Sequence[tuple[str | None, ...]], moved: Callable[[str], str]) -> None:
    with closing(sqlite3.connect(lake_dir / CATALOG_FILE, timeout=30)) as connection, connection:
        connection.executemany(
            "UPDATE iceberg_tables SET metadata_location = ?, previous_metadata_location = ? "
            "WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?",
            changes,
        )
        if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'iceberg_namespace_properties'").fetchone():
            rows = connection.execute("SELECT rowid, property_value FROM iceberg_namespace_properties").fetchall()
            connection.executemany(
                "UPDATE iceberg_namespace_properties SET property_value = ? WHERE rowid = ?",
                [(moved(value), rowid) for rowid, value in rows if isinstance(value, str) and moved(value) != value],
            )


def _changed_rows(
    lake_dir: Path, moved: Callable[[str], str]
) -> Iterator[tuple[str | None, str | None, str, str, str]]:
    for catalog, namespace, table, location, previous in _catalog_rows(lake_dir):
        after = (location and moved(location), previous and moved(previous))
        if after != (location, previous):
            yield *after, catalog, namespace, table


def _replace(file: Path, content: bytes) -> None:
    temporary = file.with_name(f".{file.name}.tmp")
    temporary.write_bytes(content)
    temporary.replace(file)
    # Hadoop's local file system keeps checksums beside its files, and refuses a file that does not fit.
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
