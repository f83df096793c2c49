"""The offsets files of lake snapshots, which the cluster writes into its remote folder (`FlussPaths`).

Their format is that of `TableBucketOffsetsJsonSerde`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import TableBucket
from fluss_tiering.storage.fluss.reading.remote_files import RemoteFiles

_NAME: Final = re.compile(r".*/lake/[^/]+/[^/]+-(\d+)/metadata/[^/]+\.offsets")


def is_offsets_file(files: RemoteFiles, table_id: int, path: str) -> bool:
    """Return whether there is an offsets file of this table at a path.

    A commit with a path without a file makes the table unusable, so it is an error if this cannot be found out.

    Raises:
        FlussTieringError: STORAGE if it cannot be found out whether the file exists.
    """
    name = _NAME.fullmatch(path)
    if name is None or int(name[1]) != table_id:
        return False
    try:
        files.size(path)
    except FileNotFoundError:
        return False
    return True


def read_offsets_file(files: RemoteFiles, table_id: int, path: str) -> dict[TableBucket, int]:
    """Return the offset, exclusive, up to which each bucket is in the lake. A bucket with nothing there is left out.

    Raises:
        FlussTieringError: STORAGE if the file cannot be read; CORRUPT_DATA if it is missing, or no offsets file of this
            table.
    """
    if (name := _NAME.fullmatch(path)) is None or int(name[1]) != table_id:
        raise _unusable(path, f"it is no offsets file of the table {table_id}")
    try:
        with files.open(path) as opened:
            content = json.loads(opened.read())
        partitions = content.get("partition_offsets", ())
        found = {
            **_offsets(table_id, None, content.get("bucket_offsets", ())),
            **{
                bucket: offset
                for each in partitions
                for bucket, offset in _offsets(table_id, each["partition_id"], each["bucket_offsets"]).items()
            },
        }
    except FileNotFoundError:
        raise _unusable(path, "it does not exist") from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _unusable(path, f"{type(error).__name__}: {error}") from None
    if content.get("table_id") != table_id:
        raise _unusable(path, f"it is of the table {content.get('table_id')}")
    return found


def _offsets(table_id: int, partition_id: int | None, offsets: Sequence[Any]) -> Mapping[TableBucket, int]:
    return {
        TableBucket(table_id, number, partition_id): int(offset)
        for number, offset in enumerate(offsets)
        if int(offset) >= 0
    }


def _unusable(path: str, why: str) -> FlussTieringError:
    return FlussTieringError(
        ErrorCode.CORRUPT_DATA,
        f"the offsets file {path!r}: {why}; expected a file that the cluster wrote into its remote folder",
    )
