"""The lake of a run: in a folder, which is a small disk of its own where that may be made, or in S3 behind a proxy."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlparse

from fetch_test_servers import AWS_BUNDLE, fetch_jar
from fluss_tiering.model.table import TablePath
from s3_support import ACCESS_KEY, REGION, SECRET_KEY, S3Server
from torture.throttling import ThrottlingProxy

_BUCKET: Final = "lake"
_ROOM: Final = "50%"
_LEFT_BYTES: Final = 64 << 10


class Lake:
    """The warehouse and its catalog, as a context manager.

    Args:
        folder: The folder for its files.
        on_s3: Whether the files are in S3.
    """

    def __init__(self, folder: Path, *, on_s3: bool = False) -> None:
        self._folder = folder
        self._on_s3 = on_s3
        self._warehouse = folder / "warehouse"
        self._stack = ExitStack()
        self._objects: Path | None = None
        self.catalog_file = folder / "catalog.db"
        self.jars: list[Path] = []
        """What Spark needs to reach the files."""
        self.properties: dict[str, str] = {}
        """The properties of the catalog."""
        self.throttling: ThrottlingProxy | None = None
        self.has_own_disk = False

    def __enter__(self) -> Self:
        self._warehouse.mkdir(parents=True)
        self.properties = {
            "type": "jdbc",
            "name": "torture",
            "uri": f"jdbc:sqlite:{self.catalog_file}?busy_timeout=30000",
            "jdbc.schema-version": "V1",
            "warehouse": f"file:{self._warehouse}",
        }
        if self._on_s3:
            self._start_s3()
        elif _mounted(f"size={_ROOM}", self._warehouse):
            self.has_own_disk = True
            self._stack.callback(subprocess.run, ["umount", "--lazy", str(self._warehouse)], check=True)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    def metadata(self, path: TablePath) -> str:
        """Return the path of the newest metadata file of a table.

        Raises:
            KeyError: There is no such table in the catalog.
        """
        found = newest_metadata(self.catalog_file, path)
        place = urlparse(found)
        return found if self._objects is None else str(self._objects / place.netloc / place.path.lstrip("/"))

    def fill_disk(self) -> None:
        """Leave nearly no room for files."""
        used = shutil.disk_usage(self._warehouse).used
        assert _mounted(f"remount,size={used + _LEFT_BYTES}", self._warehouse)

    def free_disk(self) -> None:
        """Make room again."""
        assert _mounted(f"remount,size={_ROOM}", self._warehouse)

    def forget(self, database: str) -> None:
        """Delete the files of all tables of a database, which no plan uses any more."""
        shutil.rmtree((self._objects or self._folder) / (_BUCKET if self._objects else "warehouse") / database, True)

    def _start_s3(self) -> None:
        server = self._stack.enter_context(S3Server(self._folder / "s3"))
        server.filesystem().create_dir(_BUCKET)
        self.throttling = self._stack.enter_context(ThrottlingProxy(f"127.0.0.1:{server.port}"))
        self._objects = server.objects
        self.jars = [fetch_jar(AWS_BUNDLE)]
        self.properties |= {
            "warehouse": f"s3://{_BUCKET}",
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "s3.endpoint": self.throttling.endpoint,
            "s3.region": REGION,
            "s3.path-style-access": "true",
            "s3.access-key-id": ACCESS_KEY,
            "s3.secret-access-key": SECRET_KEY,
            "client.region": REGION,
        }


def newest_metadata(catalog_file: Path, path: TablePath) -> str:
    """Return the location of a table's newest metadata file, as a JDBC catalog in SQLite has it.

    Raises:
        KeyError: There is no such table.
    """
    with closing(sqlite3.connect(catalog_file, timeout=30)) as catalog:
        (found,) = catalog.execute(
            "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?",
            (path.database, path.table),
        ).fetchone() or (None,)
    if found is None:
        raise KeyError(str(path))
    return str(found)


def _mounted(options: str, folder: Path) -> bool:
    """Mount a file system in memory, and return whether this user may do that."""
    command = ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
