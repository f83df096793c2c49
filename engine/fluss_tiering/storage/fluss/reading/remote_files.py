"""The files of a cluster's remote folder (log segments and KV snapshots), on a disk or in an object store."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyarrow import fs

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.location import Location
from fluss_tiering.storage.files import reporting_os_errors

_COPY_BYTES: Final = 8 << 20
_CONNECT_S: Final = 10.0
_REQUEST_S: Final = 30.0
_S3_TRIES: Final = 6


class RemoteFiles:
    """Opens files by the paths that the cluster gives. Threads may share it."""

    def __init__(self, s3: Mapping[str, str] | None = None) -> None:
        self._s3 = dict(s3 or {})
        self._systems: dict[tuple[str, str], fs.FileSystem] = {}
        self._lock = threading.Lock()

    def local(self, path: str) -> Path | None:
        """Return the path of a file on this machine, or None if it is in an object store."""
        location = Location.parse(path)
        return Path(location.path) if location.is_local else None

    def open(self, path: str) -> pa.NativeFile:
        """Open a file that can be read at any position.

        Raises:
            FileNotFoundError: There is no such file.
            FlussTieringError: STORAGE if the store cannot be reached or is of an unknown kind.
        """
        with reporting_storage_errors(path):
            system, name = self._system(path)
            return system.open_input_file(name)

    def size(self, path: str) -> int:
        """Return the size of a file. Errors are those of `open`."""
        with reporting_storage_errors(path):
            system, name = self._system(path)
            info: fs.FileInfo = system.get_file_info(name)
        if info.type is not fs.FileType.File:
            raise FileNotFoundError(path)
        return int(info.size)

    def copy(self, path: str, to: Path) -> None:
        """Copy a file to this machine. Errors are those of `open`, and STORAGE if this machine's disk refuses."""
        with self.open(path) as source, reporting_os_errors("copy a remote file to", to), to.open("wb") as copied:
            while True:
                with reporting_storage_errors(path):
                    data = source.read_buffer(_COPY_BYTES)
                if not data.size:
                    return
                copied.write(data)

    def _system(self, path: str) -> tuple[fs.FileSystem, str]:
        location = Location.parse(path)
        if location.is_local:
            return fs.LocalFileSystem(), location.path
        with self._lock:
            key = (location.scheme, location.authority)
            if key not in self._systems:
                self._systems[key] = self._object_store(location)
        return self._systems[key], f"{location.authority}{location.path}"

    def _object_store(self, location: Location) -> fs.FileSystem:
        if location.is_s3:
            settings = dict(self._s3)
            if not settings.keys() & {"region", "endpoint_override"}:
                settings["region"] = fs.resolve_s3_region(location.authority)
            return fs.S3FileSystem(
                **settings,
                connect_timeout=_CONNECT_S,
                request_timeout=_REQUEST_S,
                retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_S3_TRIES),
            )
        system, _ = fs.FileSystem.from_uri(f"{location.scheme}://{location.authority}/")
        return system


@contextmanager
def reporting_storage_errors(path: str) -> Iterator[None]:
    """Turn the errors of a store into STORAGE, which names the file, or into a FileNotFoundError with the path."""
    try:
        yield
    except FileNotFoundError:
        raise FileNotFoundError(path) from None
    except (OSError, pa.ArrowException, ValueError) as error:
        why = str(error).partition("\n")[0] or type(error).__name__
        raise FlussTieringError(
            ErrorCode.STORAGE,
            f"{path} cannot be read here: {why}; expected a file of the cluster's remote.data.dir that every executor "
            "reaches under that very address",
        ) from error
