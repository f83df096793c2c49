"""A round with a time limit reads in waves, and commits what it has read when its time is over.

Each wave is a Spark job. It reads about the same share of every bucket, in log order, so that what has been read is
always a prefix of each bucket's range. All snapshots are in the first wave, since a snapshot must be read as a whole.
A plan without a time limit, or a small plan, is one wave.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from fluss_tiering.model.table import TableBucket
from fluss_tiering.model.table_options import freshness_ms, max_round_duration_ms
from fluss_tiering.model.units import parse_duration_ms
from fluss_tiering.spark.round.plan import MIN_PIECE_BYTES, LogPiece, Piece, PlanLimits, RoundPlan, SnapshotPiece

FRESHNESS_IS_LIMIT: Final = "freshness"
"""The value of `max_round_duration` for each table's own freshness, as in Fluss's continuous tiering service."""


def time_limit_s(properties: Mapping[str, str], given: str | None) -> float | None:
    """Return how long a round of a table may read, in seconds; None if there is no limit.

    The limit that the application was given comes first, then the table's `table.datalake.max-round-duration`. Without
    both there is no limit: a scheduled application runs one round of a table, and what this round left would wait for
    the next schedule, however soon it is due. A service that never ends gives `freshness`.

    Args:
        given: A duration as Fluss writes it, or `freshness`; None if the application was given nothing.

    Raises:
        FlussTieringError: INVALID_REQUEST if `given` is not a duration; INVALID_TABLE if the table's property is not.
    """
    if given == FRESHNESS_IS_LIMIT:
        limit_ms: int | None = freshness_ms(properties)
    elif given is not None:
        limit_ms = parse_duration_ms(given)
    else:
        limit_ms = max_round_duration_ms(properties)
    return None if limit_ms is None else limit_ms / 1000


def waves(plan: RoundPlan, limits: PlanLimits) -> Iterator[tuple[Piece, ...]]:
    """Yield the pieces of the plan in waves, each of `limits.wave_bytes` for every task that runs at the same time."""
    limit = limits.wave_bytes * limits.parallelism
    wave: list[Piece] = [piece for piece in plan.pieces if isinstance(piece, SnapshotPiece)]
    size = sum(piece.size_bytes for piece in wave)
    for piece in _evenly([piece for piece in plan.pieces if isinstance(piece, LogPiece)]):
        if wave and size + piece.size_bytes > limit:
            yield tuple(wave)
            wave, size = [], 0.0
        wave.append(piece)
        size += piece.size_bytes
    if wave:
        yield tuple(wave)


def tasks_of(pieces: Sequence[Piece], parallelism: int) -> int:
    """Return over how many Spark tasks pieces are spread. Small pieces share a task, which costs 0.1 seconds."""
    size = sum(piece.size_bytes for piece in pieces)
    return min(len(pieces), max(parallelism, math.ceil(size / MIN_PIECE_BYTES)))


def after(plan: RoundPlan, done: Sequence[Piece]) -> RoundPlan:
    """Return the plan of a round that has read these pieces: all of them, or those of the first waves."""
    if len(done) == len(plan.pieces):
        return replace(plan, pieces=tuple(done))
    ends = {piece.bucket: piece.end_offset for piece in done if isinstance(piece, LogPiece)}
    return replace(plan, pieces=tuple(done), log_end_offsets={**plan.start_offsets, **ends}, complete=False)


def _evenly(pieces: Sequence[LogPiece]) -> list[LogPiece]:
    """Return the pieces in an order in which all buckets reach their ends together, each in log order."""
    counts = Counter(piece.bucket for piece in pieces)
    seen: Counter[TableBucket] = Counter()
    shares: list[tuple[float, int]] = []
    for piece in pieces:
        seen[piece.bucket] += 1
        shares.append((seen[piece.bucket] / counts[piece.bucket], len(shares)))
    return [pieces[number] for _, number in sorted(shares)]
