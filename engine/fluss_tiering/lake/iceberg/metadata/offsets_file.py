"""The file with the log end offsets of a commit to a table with many buckets.

Iceberg keeps the summaries of all snapshots in each metadata file, so that a summary must stay small. The offsets of
many buckets therefore lie in a file beside the data files, in the form of Fluss's own offsets files
(`TableBucketOffsetsJsonSerde`), and the summary names the file. A round that recovers then needs nothing but the lake.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from fluss_tiering.lake.iceberg.library import JavaTable, call
from fluss_tiering.model.table import TableBucket

_VERSION: Final = 1
_MISSING: Final = -1


def write_offsets(table: JavaTable, location: str, table_id: int, offsets: Mapping[TableBucket, int]) -> None:
    """Write a new file. Errors are those of the JVM.

    Args:
        table: The table.
        location: The location of the file.
        table_id: The id of the Fluss table.
        offsets: The log end offset of each bucket.
    """
    call(table, "writeFile", location, to_json(table_id, offsets))


def read_offsets(table: JavaTable, location: str) -> dict[TableBucket, int]:
    """Return the log end offsets in a file. Errors are those of the JVM, and ValueError for another content."""
    return from_json(call(table, "readFile", location))


def to_json(table_id: int, offsets: Mapping[TableBucket, int]) -> bytes:
    """Return the content of a file."""
    lists: dict[int | None, list[int]] = {}
    for bucket, offset in sorted(offsets.items(), key=lambda item: (item[0].partition_id or 0, item[0].bucket)):
        of_partition = lists.setdefault(bucket.partition_id, [])
        of_partition += [_MISSING] * (bucket.bucket - len(of_partition))
        of_partition.append(offset)
    content: dict[str, Any] = {"version": _VERSION, "table_id": table_id}
    if None in lists:
        content["bucket_offsets"] = lists[None]
    else:
        content["partition_offsets"] = [
            {"partition_id": partition_id, "bucket_offsets": of_partition}
            for partition_id, of_partition in lists.items()
        ]
    return json.dumps(content, separators=(",", ":")).encode()


def from_json(data: bytes) -> dict[TableBucket, int]:
    """Return the log end offsets in the content of a file.

    Raises:
        ValueError: The content has another form.
    """
    try:
        content = json.loads(data)
        if content["version"] != _VERSION:
            raise ValueError(f"version {content['version']}, expected {_VERSION}")
        if "bucket_offsets" in content:
            lists = {None: content["bucket_offsets"]}
        else:
            lists = {each["partition_id"]: each["bucket_offsets"] for each in content["partition_offsets"]}
        return {
            TableBucket(content["table_id"], number, partition_id): offset
            for partition_id, of_partition in lists.items()
            for number, offset in enumerate(of_partition)
            if offset != _MISSING
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no offsets file: {error!r}") from error
