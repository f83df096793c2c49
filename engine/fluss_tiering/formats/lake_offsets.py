"""The offsets files of lake snapshots, in the format of Fluss (`TableBucketOffsetsJsonSerde`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from fluss_tiering.model.table import TableBucket

_VERSION: Final = 1
_MISSING: Final = -1


def offsets_to_json(table_id: int, offsets: Mapping[TableBucket, int], more: Mapping[str, Any] | None = None) -> bytes:
    """Return the content of a file.

    Args:
        offsets: The log end offset of each bucket.
        more: What the file holds beside them.
    """
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
    return json.dumps({**content, **(more or {})}, separators=(",", ":")).encode()


def offsets_from_json(data: bytes) -> dict[TableBucket, int]:
    """Return the log end offsets in the content of a file. A bucket with nothing in the lake is left out.

    Raises:
        ValueError: The content has another form.
    """
    try:
        content = json.loads(data)
        if content["version"] != _VERSION:
            raise ValueError(f"version {content['version']}, expected {_VERSION}")
        table_id = content["table_id"]
        if "bucket_offsets" in content:
            lists = {None: content["bucket_offsets"]}
        else:
            lists = {each["partition_id"]: each["bucket_offsets"] for each in content.get("partition_offsets", ())}
        return {
            TableBucket(table_id, number, partition_id): offset
            for partition_id, of_partition in lists.items()
            for number, offset in enumerate(of_partition)
            if offset != _MISSING
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no offsets file: {error!r}") from error
