"""How a round deletes the rows that its changes replace: by key, or by position in the lake's data files.

By position, a piece that is alone in its place finds and deletes the rows by itself. Of several pieces in a place, the
later ones delete rows that the earlier ones write at the same time. These pieces only note their keys. A second Spark
stage then has a piece of work for each such place, and writes the deletes of all of its pieces.

All deletes by position of a round are in one row delta of the lake table, since they also apply to rows of their own
commit.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark import TaskContext

from fluss_tiering.lake.names import round_file_name
from fluss_tiering.lake.protocol import LakeFileWriter, LakePlace, LakeTable, LiveDataFile, NotedPlace
from fluss_tiering.model.table import TableInfo
from fluss_tiering.spark.round.keepalive import RoundGuard
from fluss_tiering.spark.round.pieces import PieceWork, Stopwatch, peak_bytes, until_expired
from fluss_tiering.spark.round.plan import LogPiece, Piece, PlanLimits, RoundPlan
from fluss_tiering.spark.round.result import PieceResult

if TYPE_CHECKING:
    from fluss_tiering.lake.key_index import PieceKeys


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """The work of the second stage.

    Attributes:
        table: The table.
        writer: Writes lake files.
        work: The places whose deletes are written; tasks receive their numbers.
        tasks: How many Spark tasks share the work.
    """

    table: TableInfo
    writer: LakeFileWriter
    work: Sequence[NotedPlace]
    tasks: int

    def __call__(self, numbers: Iterable[int]) -> Iterator[PieceResult]:
        """Do the places with these numbers. If the credentials for the lake end, tell which places are left."""
        context = TaskContext.get()
        attempt = context.taskAttemptId() if context else 0

        def do(number: int) -> PieceResult:
            watch = Stopwatch()
            with watch("encode"):
                files = tuple(self.writer.write_deletes(self.work[number], attempt))
            return PieceResult(number, 0, files, watch.seconds(), peak_bytes())

        return until_expired(numbers, do)


@dataclass(frozen=True, slots=True)
class PlannedDeletes:
    """How the pieces of a round delete rows.

    Attributes:
        live: The data files that the lake has of each place, if rows are deleted by position; empty if they are deleted
            by key.
        shared: The places that have several pieces.
    """

    live: Mapping[LakePlace, Sequence[LiveDataFile]]
    shared: frozenset[LakePlace]

    @classmethod
    def of(cls, lake: LakeTable, table: TableInfo, plan: RoundPlan) -> PlannedDeletes:
        """Return how the pieces of a plan delete rows.

        Raises:
            FlussTieringError: STORAGE if the lake cannot be read.
        """
        if not table.has_primary_key:
            return cls({}, frozenset())
        counts = Counter(map(_place_of, plan.pieces))
        live = lake.live_files(counts)
        # Whatever the lake holds of a place that is read again is removed by the commit.
        return cls(
            {place: () if place in plan.read_again else files for place, files in live.items()},
            frozenset(place for place, count in counts.items() if count > 1),
        )

    def work_of(self, piece: Piece, location: str) -> PieceWork:
        """Return a piece with the beginning of the locations of its files."""
        place = _place_of(piece)
        if place not in self.live:
            return PieceWork(piece, location)
        if place in self.shared:
            return PieceWork(piece, location, notes_keys=True)
        return PieceWork(piece, location, tuple(self.live[place]))

    def in_one_commit(self, plan: RoundPlan) -> RoundPlan:
        """Return the plan with all pieces in one row delta, if rows are deleted by position."""
        if not self.live:
            return plan
        pieces = tuple(replace(piece, ordinal=0) if isinstance(piece, LogPiece) else piece for piece in plan.pieces)
        return replace(plan, pieces=pieces)

    def tasks(self, limits: PlanLimits) -> int:
        """Return how many tasks the second stage has; 0 if there is none."""
        return min(len(self.live.keys() & self.shared), limits.parallelism)

    def noted(
        self, lake: LakeTable, pieces: Sequence[Piece], results: Sequence[PieceResult], guard: RoundGuard
    ) -> dict[int, NotedPlace]:
        """Return the places whose deletes are to be written, each under the number of its last piece.

        Args:
            lake: The lake table.
            pieces: The pieces that were written.
            results: What each of them wrote.
            guard: The guard of the round, by which files have their names.
        """
        last: dict[LakePlace, int] = {}
        keys_of: dict[LakePlace, dict[int, list[PieceKeys]]] = defaultdict(lambda: defaultdict(list))
        for number, (piece, result) in enumerate(zip(pieces, results, strict=True)):
            if result.keys is not None:
                last[_place_of(piece)] = number
                keys_of[_place_of(piece)][piece.ordinal].append(result.keys)
        places = {}
        for (bucket, values), number in last.items():
            by_ordinal = keys_of[bucket, values]
            # The files have the name of the last piece, whose data files end differently.
            name = round_file_name(number, guard.claim.tiering_epoch, guard.attempt)
            places[number] = NotedPlace(
                bucket,
                lake.piece_location(bucket, name, values),
                values,
                tuple(self.live[bucket, values]),
                tuple(tuple(by_ordinal[ordinal]) for ordinal in sorted(by_ordinal)),
            )
        return places


def with_deletes(results: Sequence[PieceResult], deletes: Mapping[int, PieceResult]) -> list[PieceResult]:
    """Return the results of pieces, with what the second stage wrote under the number of a piece."""
    joined = list(results)
    for number, wrote in deletes.items():
        piece = joined[number]
        joined[number] = replace(
            piece,
            files=(*piece.files, *wrote.files),
            seconds=piece.seconds + wrote.seconds,
            peak_bytes=max(piece.peak_bytes, wrote.peak_bytes),
        )
    return joined


def _place_of(piece: Piece) -> LakePlace:
    return piece.bucket.bucket, piece.partition_values
