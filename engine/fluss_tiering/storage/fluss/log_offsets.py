"""The log ranges of many buckets, with one call to each server that leads some of them instead of one per bucket."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from fluss_tiering.model.table import TableBucket, TablePath
from fluss_tiering.storage.fluss.rpc.call import ServerKind
from fluss_tiering.storage.fluss.rpc.calls.log import OffsetType, log_offset, log_offsets_of
from fluss_tiering.storage.fluss.rpc.calls.metadata import metadata
from fluss_tiering.storage.fluss.rpc.client import FlussClient
from fluss_tiering.storage.fluss.rpc.errors import FlussError, FlussServerError
from fluss_tiering.storage.fluss.rpc.parallel import ParallelCalls
from fluss_tiering.storage.fluss.rpc.routing import without_leader

_PARTITIONS_AT_ONCE: Final = 500
_GONE: Final = frozenset({FlussError.PARTITION_NOT_EXISTS, FlussError.UNKNOWN_TABLE_OR_BUCKET_EXCEPTION})


def log_offsets(
    client: FlussClient,
    calls: ParallelCalls,
    path: TablePath,
    buckets: Iterable[TableBucket],
    *,
    wait_for_leaders: bool = True,
) -> dict[TableBucket, tuple[int, int]]:
    """Return the log range [start, end) of each of the buckets of a table.

    Buckets of partitions that do not exist, or exist no more, are left out.

    Args:
        client: The client for the cluster.
        calls: Makes calls at the same time.
        path: The table.
        buckets: The buckets.
        wait_for_leaders: Whether to wait for the leader of a bucket that has none, as long as the client waits.

    Raises:
        FlussTieringError: TABLE_NOT_EXIST if there is no such table; UNAVAILABLE if the cluster cannot be reached;
            NOT_LEADER_OR_FOLLOWER if a bucket has no leader, or has none for too long.
    """
    wanted = list(buckets)
    leaders = _leaders(client, calls, path, {bucket.partition_id for bucket in wanted})
    if not wait_for_leaders and (alone := [each for each in wanted if each in leaders and leaders[each] is None]):
        ids = {bucket.partition_id for bucket in alone}
        leaders = {**leaders, **_leaders(client, calls, path, ids, ServerKind.COORDINATOR)}
        for bucket in alone:
            if leaders.get(bucket) is None:
                raise without_leader(path, bucket)
    groups: dict[tuple[int | None, int | None], list[TableBucket]] = {}
    for bucket in wanted:
        if bucket in leaders:
            groups.setdefault((leaders[bucket], bucket.partition_id), []).append(bucket)
    found = calls.each(lambda group: _of_group(client, path, group), groups.values())
    return {bucket: offsets for of_group in found for bucket, offsets in of_group.items()}


def _leaders(
    client: FlussClient,
    calls: ParallelCalls,
    path: TablePath,
    partition_ids: set[int | None],
    asked: ServerKind = ServerKind.ANY,
) -> Mapping[TableBucket, int | None]:
    ids = sorted(each for each in partition_ids if each is not None)
    if not ids:
        return _known_leaders(client, path, (), asked)
    parts = [ids[at : at + _PARTITIONS_AT_ONCE] for at in range(0, len(ids), _PARTITIONS_AT_ONCE)]
    found = calls.each(lambda part: _leaders_of_partitions(client, path, part, asked), parts)
    return {bucket: leader for leaders in found for bucket, leader in leaders.items()}


def _known_leaders(
    client: FlussClient, path: TablePath, ids: Sequence[int], asked: ServerKind
) -> Mapping[TableBucket, int | None]:
    known = client.call(metadata([path], ids, asked=asked))
    # A server that is not alive any more stays the leader of a bucket that no other server has.
    return {bucket: leader if leader in known.tablet_servers else None for bucket, leader in known.leaders.items()}


def _leaders_of_partitions(
    client: FlussClient, path: TablePath, ids: Sequence[int], asked: ServerKind
) -> dict[TableBucket, int | None]:
    try:
        return dict(_known_leaders(client, path, ids, asked))
    except FlussServerError as error:
        if error.fluss_error not in _GONE:
            raise
    if len(ids) == 1:
        return {}
    # One dropped partition fails the whole call, so each half is asked for, until only that partition fails.
    half = len(ids) // 2
    return {
        **_leaders_of_partitions(client, path, ids[:half], asked),
        **_leaders_of_partitions(client, path, ids[half:], asked),
    }


def _of_group(
    client: FlussClient, path: TablePath, buckets: Sequence[TableBucket]
) -> dict[TableBucket, tuple[int, int]]:
    """Return the log ranges of buckets of one partition that one server leads, or led a moment ago."""
    try:
        ends = _offsets(client, path, buckets, OffsetType.LATEST)
        starts = _offsets(client, path, buckets, OffsetType.EARLIEST)
    except FlussServerError as error:
        if error.fluss_error in _GONE and buckets[0].partition_id is not None:
            return {}
        raise
    return {bucket: (min(starts[bucket], ends[bucket]), ends[bucket]) for bucket in buckets}


def _offsets(
    client: FlussClient, path: TablePath, buckets: Sequence[TableBucket], which: OffsetType
) -> dict[TableBucket, int]:
    found = client.call(log_offsets_of(path, buckets, which))
    # A bucket whose leader has moved gets a call of its own.
    rest = {bucket: client.call(log_offset(path, bucket, which)) for bucket in buckets if bucket not in found}
    return {**found, **rest}
