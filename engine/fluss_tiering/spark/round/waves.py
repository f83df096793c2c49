"""A round that may take only so long, read in waves: what the waves before its end have read is what it commits (S26).

Each wave is a Spark job and takes every bucket on by about the same share, its pieces in log order, so that what was
read is always a prefix of each bucket's range. All snapshots are in the first wave: they are not cut. A plan without a
limit, or a small one, is one wave.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from fluss_tiering.model.duration import parse_duration_ms
from fluss_tiering.model.table import TableBucket
from fluss_tiering.model.table_options import freshness_ms, max_round_duration_ms
from fluss_tiering.spark.round.plan import MIN_PIECE_BYTES, LogPiece, Piece, PlanLimits, RoundPlan, SnapshotPiece

FRESHNESS_IS_LIMIT: Final = "freshness"
"""As `max_round_duration`: each table's own freshness, as in Fluss's continuous service."""


def time_limit_s(properties: Mapping[str, str], given: str | None) -> float | None:
    """How long a round of a table may read, in seconds; None for as long as it takes.

    What the application was given counts, then the table's `table.datalake.max-round-duration`. Without either a round
    takes what it needs: a scheduled application runs one round of a table, and what it left would wait for the next
    schedule, however soon it is due. A service that goes on for ever gives `freshness`.

    Args:
        properties: of the table.
        given: a duration as Fluss writes it, or `freshness`.

    Raises:
        FlussTieringError: INVALID_REQUEST or INVALID_TABLE for what is no duration.
    """
    if given == FRESHNESS_IS_LIMIT:
        limit_ms: int | None = freshness_ms(properties)
    elif given is not None:
        limit_ms = parse_duration_ms(given)
    else:
        limit_ms = max_round_duration_ms(properties)
    return None if limit_ms is None else limit_ms / 1000


def waves(plan: RoundPlan, limits: PlanLimits) -> Iterator[tuple[Piece, ...]]:
    """The plan's pieces, cut into waves of `limits.wave_bytes` for each task that runs at once."""
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
    """Spark tasks that pieces are spread over; small pieces share one, since one costs a tenth of a second."""
    size = sum(piece.size_bytes for piece in pieces)
    return min(len(pieces), max(parallelism, math.ceil(size / MIN_PIECE_BYTES)))


def after(plan: RoundPlan, done: Sequence[Piece]) -> RoundPlan:
    """The plan of a round that has read these pieces of it: all, or those of its first waves."""
    if len(done) == len(plan.pieces):
        return replace(plan, pieces=tuple(done))
    ends = {piece.bucket: piece.end_offset for piece in done if isinstance(piece, LogPiece)}
    return replace(plan, pieces=tuple(done), log_end_offsets={**plan.start_offsets, **ends}, complete=False)


def _evenly(pieces: Sequence[LogPiece]) -> list[LogPiece]:
    """The pieces in an order in which all buckets come to their ends together, each in log order."""
    counts = Counter(piece.bucket for piece in pieces)
    seen: Counter[TableBucket] = Counter()
    shares: list[tuple[float, int]] = []
    for piece in pieces:
        seen[piece.bucket] += 1
        shares.append((seen[piece.bucket] / counts[piece.bucket], len(shares)))
    return [pieces[number] for _, number in sorted(shares)]
