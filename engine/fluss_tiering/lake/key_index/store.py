"""Where the files of indexes are: a folder in the object store of the lake, or on a disk."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa
from pyarrow import fs

from fluss_tiering.formats.compiled import Int64s, UInt8s
from fluss_tiering.lake.key_index.place import unusable
from fluss_tiering.lake.object_store import filesystem_of, naming_expired_credentials, path_of, require_valid
from fluss_tiering.lake.parallel import REMOTE_THREADS, in_threads, map_on_store
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.location import Location

_LOCAL_GAP_BYTES: Final = 1 << 10
"""Reading so many bytes of a local file takes about as long as another call."""
_REMOTE_GAP_BYTES: Final = 256 << 10
"""Reading so many bytes of an object takes less time than another request."""
_FREE_GAP_BYTES: Final = 1 << 20
"""How many bytes that nobody asked for may be read, even if fewer were asked for."""
_MOST_REQUEST_BYTES: Final = 4 << 20
"""The size up to which ranges are joined, so that large reads are made by several requests at once."""
_LOCAL_THREADS: Final = 8
"""A disk answers several requests in the time of one, if it has to look for what is asked for."""
_LOCAL_REQUESTS_PER_THREAD: Final = 256
"""Fewer requests of a file that is in memory take less time than a thread takes to start."""

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

_counting: Final = threading.Lock()


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in the store.

    Attributes:
        name: Its name below the location of the store.
        size: Its size in bytes.
        modified: When it was written; None if the store does not say.
    """

    name: str
    size: int
    modified: datetime | None


@dataclass(slots=True)
class ReadCounts:
    """What was read from a store.

    Attributes:
        requests: The number of requests.
        bytes: The number of bytes.
    """

    requests: int = 0
    bytes: int = 0


@dataclass(eq=False)
class IndexStore:
    """A folder for indexes. It can be pickled, and executors can use it as the driver can.

    Attributes:
        location: The folder, for example `s3://bucket/warehouse/db/table/key-index`.
        io_properties: The properties of the lake table's FileIO, which open the store.
        counts: What this object has read.
    """

    location: str
    io_properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    counts: ReadCounts = field(default_factory=ReadCounts)

    @cached_property
    def is_local(self) -> bool:
        """Whether the store is on a disk of this machine."""
        return Location.parse(self.location).is_local

    @cached_property
    def _filesystem(self) -> fs.FileSystem:
        return filesystem_of(self.location, self.io_properties)

    def full_name(self, name: str) -> str:
        """Return the location of a file."""
        return f"{self.location.rstrip('/')}/{name}"

    def read_file(self, name: str) -> bytes | None:
        """Return the content of a file; None if it does not exist.

        Raises:
            UnusableIndexError: if it cannot be read.
            ExpiredCredentialsError: if the credentials are not valid any more.
        """
        try:
            with self._reading(name), self._filesystem.open_input_file(self._path(name)) as file:
                content = bytes(file.readall())
        except FileNotFoundError:
            return None
        self._count(1, len(content))
        return content

    def read(self, name: str, starts: Int64s, length: int) -> UInt8s:
        """Return ranges of a file, all of the same length, one after the other.

        Ranges that are close together are read by one request. All that is read is at most twice what is asked for, or
        at most a MiB more.

        Args:
            starts: Where the ranges begin, in ascending order; they do not overlap.
            length: The length of each, in bytes.

        Raises:
            UnusableIndexError: if the file is missing or too short, or cannot be read.
            ExpiredCredentialsError: if the credentials are not valid any more.
        """
        content = np.empty(len(starts) * length, np.uint8)
        if not content.size:
            return content
        firsts = self._first_of_requests(starts, length)
        behind = np.append(firsts[1:], len(starts))
        sizes = starts[behind - 1] + length - starts[firsts]
        try:
            with self._reading(name), self._filesystem.open_input_file(self._path(name)) as file:

                def request(numbers: range) -> None:
                    for number in numbers:
                        first, end, size = int(firsts[number]), int(behind[number]), int(sizes[number])
                        found = file.read_at(size, int(starts[first]))
                        if len(found) < size:
                            end_byte = starts[first] + size
                            raise unusable(self.full_name(name), f"ends before byte {end_byte}", "what was written")
                        _copy_ranges(found, starts[first:end] - starts[first], length, content[first * length :])

                in_threads(request, self._shares(len(firsts)))
        except FileNotFoundError:
            raise unusable(self.full_name(name), "is missing", "a file of the index") from None
        self._count(len(firsts), int(sizes.sum()))
        return content

    def write_file(self, name: str, content: bytes) -> None:
        """Write or replace a file in one step.

        Raises:
            FlussTieringError: STORAGE if the store refuses.
            ExpiredCredentialsError: if the credentials are not valid any more.
        """
        temporary = f"{name}.{uuid.uuid4().hex}.tmp" if self.is_local else name
        with self.writing(temporary) as file:
            file.write(content)
        if temporary != name:
            with self._changing(name):
                self._filesystem.move(self._path(temporary), self._path(name))

    @contextmanager
    def writing(self, name: str) -> Iterator[pa.NativeFile]:
        """Return a stream into a new file, which is complete at the end of the block, and deleted if that fails.

        Raises:
            FlussTieringError: STORAGE if the store refuses.
            ExpiredCredentialsError: if the credentials are not valid any more.
        """
        path = self._path(name)
        with self._changing(name):
            if self.is_local:
                self._filesystem.create_dir(path.rpartition("/")[0], recursive=True)
            stream = self._filesystem.open_output_stream(path)
        try:
            with self._changing(name):
                yield stream
                stream.close()
        except BaseException:
            # Whatever fails here, the failure that led here is the one to report.
            with suppress(Exception):
                stream.close()
            with suppress(Exception):
                self._filesystem.delete_file(path)
            raise

    def files(self, folder: str, prefix: str = "") -> list[StoredFile]:
        """Return the files of a folder whose names begin so, without those of sub-folders; none if it does not exist.

        Raises:
            FlussTieringError: STORAGE if the store refuses.
            ExpiredCredentialsError: if the credentials are not valid any more.
        """
        with self._changing(folder):
            found = self._filesystem.get_file_info(fs.FileSelector(self._path(folder), allow_not_found=True))
        return [
            StoredFile(f"{folder}/{each.base_name}", each.size, _time(each.mtime_ns))
            for each in found
            if each.base_name.startswith(prefix) and each.type is fs.FileType.File
        ]

    def all_files(self) -> list[StoredFile]:
        """Return the files of all folders; none if the store does not exist, or is a plain file.

        Raises:
            FlussTieringError: STORAGE if the store refuses.
            ExpiredCredentialsError: if the credentials are not valid any more.
        """
        root = self._path("").rstrip("/")
        with self._changing(""):
            if self._filesystem.get_file_info(root).type is not fs.FileType.Directory:
                return []
            found = self._filesystem.get_file_info(fs.FileSelector(root, allow_not_found=True, recursive=True))
        return [
            StoredFile(each.path.removeprefix(root).lstrip("/"), each.size, _time(each.mtime_ns))
            for each in found
            if each.type is fs.FileType.File
        ]

    def delete(self, name: str) -> None:
        """Delete a file. That it does not exist is no error.

        Raises:
            FlussTieringError: STORAGE if the store refuses.
            ExpiredCredentialsError: if the credentials are not valid any more.
        """
        with self._changing(name), suppress(FileNotFoundError):
            self._filesystem.delete_file(self._path(name))

    def map(self, function: Callable[[ItemT], ResultT], items: Sequence[ItemT]) -> list[ResultT]:
        """Return what a function that reads from the store returns for each item.

        An object store answers many requests in the time of one, so there it is called in several threads.
        """
        return map_on_store(self.location, function, items)

    def _path(self, name: str) -> str:
        return path_of(self.full_name(name))

    def _first_of_requests(self, starts: Int64s, length: int) -> Int64s:
        """Return for each request the index of its first range."""
        gaps = starts[1:] - starts[:-1] - length
        joined = gaps <= (_LOCAL_GAP_BYTES if self.is_local else _REMOTE_GAP_BYTES)
        # The smallest gaps save most.
        smallest = np.argsort(gaps, kind="stable")
        most = max(_FREE_GAP_BYTES, len(starts) * length)
        joined[smallest[np.cumsum(gaps[smallest]) > most]] = False
        # A request begins where the range before it is in another part of the file, too.
        parts = starts // _MOST_REQUEST_BYTES
        joined &= parts[1:] == parts[:-1]
        return np.flatnonzero(np.concatenate(([True], ~joined)))

    def _shares(self, requests: int) -> list[range]:
        """Divide the numbers of requests among threads."""
        few = _LOCAL_REQUESTS_PER_THREAD if self.is_local else 1
        threads = max(1, min(requests // few, _LOCAL_THREADS if self.is_local else REMOTE_THREADS))
        return [range(requests * number // threads, requests * (number + 1) // threads) for number in range(threads)]

    def _count(self, requests: int, size: int) -> None:
        with _counting:
            self.counts.requests += requests
            self.counts.bytes += size

    @contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        """Turn errors of the store, but for a missing file, into the error of an index that cannot be used."""
        require_valid(self.io_properties)
        try:
            with naming_expired_credentials(self.io_properties, refused_too=False):
                yield
        except FileNotFoundError:
            raise
        except OSError as error:
            raise unusable(self.full_name(name), f"cannot be read ({error})", "a file that can be read") from error

    @contextmanager
    def _changing(self, name: str) -> Iterator[None]:
        require_valid(self.io_properties)
        try:
            with naming_expired_credentials(self.io_properties):
                yield
        except OSError as error:
            raise FlussTieringError(
                ErrorCode.STORAGE,
                f"could not write, list or delete {self.full_name(name)} of the key index: {error}; check the "
                "permissions of the folder, and the free space",
            ) from error


def _copy_ranges(found: bytes, starts: Int64s, length: int, content: UInt8s) -> None:
    """Copy ranges of what was found to the beginning of the content."""
    if len(starts) * length == len(found):
        content[: len(found)] = np.frombuffer(found, np.uint8)
        return
    source = memoryview(found)
    target = content.data
    for number, start in enumerate(starts.tolist()):
        target[number * length : (number + 1) * length] = source[start : start + length]


def _time(nanoseconds: int | None) -> datetime | None:
    return None if nanoseconds is None else datetime.fromtimestamp(nanoseconds / 1e9, UTC)
