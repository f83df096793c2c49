"""How a round deletes the rows that its changes replace: by key, or by position in the lake's data files.

By position, a piece that is alone in its place finds and deletes the rows by itself. Of several pieces in a place, the
later ones delete rows that the earlier ones write at the same time. These pieces only note their keys. A second Spark
stage then has a piece of work for each such place, and writes the deletes of all of its pieces.

All deletes by position of a round are in one row delta of the lake table, since they also apply to rows of their own
commit.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark import TaskContext

from fluss_tiering.lake.files import (
    FileContent,
    LakeFile,
    LakePlace,
    LiveDataFile,
    NotedPlace,
    RebasedPlace,
    RowPartition,
)
from fluss_tiering.lake.names import round_file_name
from fluss_tiering.lake.protocol import LakeFileWriter, LakeTable
from fluss_tiering.model.table import TableInfo
from fluss_tiering.spark.round.keepalive import RoundGuard
from fluss_tiering.spark.round.pieces import PieceWork, peak_bytes, until_expired
from fluss_tiering.spark.round.plan import LogPiece, Piece, PlanLimits, RoundPlan
from fluss_tiering.spark.round.result import PieceResult

if TYPE_CHECKING:
    from fluss_tiering.lake.key_index import PieceKeys


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """The work of the second stage, or the deletes of places that are written anew for a newer base.

    Attributes:
        writer: Writes lake files.
        work: The places whose deletes are written; tasks receive their numbers.
        tasks: How many Spark tasks share the work.
    """

    table: TableInfo
    writer: LakeFileWriter
    work: Sequence[NotedPlace | RebasedPlace]
    tasks: int

    def __call__(self, numbers: Iterable[int]) -> Iterator[PieceResult]:
        """Do the places with these numbers. If the credentials for the lake end, tell which places are left."""
        context = TaskContext.get()
        attempt = context.taskAttemptId() if context else 0

        def do(number: int) -> PieceResult:
            place = self.work[number]
            if isinstance(place, RebasedPlace):
                files = self.writer.rebase_deletes(place, attempt)
            else:
                files = self.writer.write_deletes(place, attempt)
            return PieceResult(number, 0, tuple(files), peak_bytes())

        return until_expired(numbers, do)


@dataclass(frozen=True, slots=True)
class PlannedDeletes:
    """How the pieces of a round delete rows.

    Attributes:
        live: The data files that the lake has of each place, if rows are deleted by position; empty if they are deleted
            by key.
        shared: The places that have several pieces.
        place: Tells the place of the rows of a bucket of a partition.
    """

    live: Mapping[LakePlace, Sequence[LiveDataFile]]
    shared: frozenset[LakePlace]
    place: Callable[[int, tuple[str, ...]], LakePlace] = field(default=lambda *bucket: bucket, compare=False)

    @classmethod
    def of(cls, lake: LakeTable, table: TableInfo, plan: RoundPlan) -> PlannedDeletes:
        """Return how the pieces of a plan delete rows.

        Raises:
            FlussTieringError: STORAGE if the lake cannot be read.
        """
        if not table.has_primary_key:
            return cls({}, frozenset(), lake.place)
        counts = Counter(lake.place(piece.bucket.bucket, piece.partition_values) for piece in plan.pieces)
        shared = frozenset(place for place, count in counts.items() if count > 1)
        return cls(_live(lake, counts, plan), shared, lake.place)

    def work_of(self, piece: Piece, location: str) -> PieceWork:
        """Return a piece with the beginning of the locations of its files."""
        place = self._place_of(piece)
        elsewhere = None if place == (piece.bucket.bucket, piece.partition_values) else place
        if place not in self.live:
            return PieceWork(piece, location, place=elsewhere)
        if place in self.shared:
            return PieceWork(piece, location, notes_keys=True, place=elsewhere)
        return PieceWork(piece, location, tuple(self.live[place]), place=elsewhere)

    def in_one_commit(self, plan: RoundPlan) -> RoundPlan:
        """Return the plan with all pieces in one row delta, if rows are deleted by position."""
        if not self.live:
            return plan
        pieces = tuple(replace(piece, ordinal=0) if isinstance(piece, LogPiece) else piece for piece in plan.pieces)
        return replace(plan, pieces=pieces)

    def rebased(
        self, lake: LakeTable, plan: RoundPlan, results: Sequence[PieceResult], guard: RoundGuard
    ) -> tuple[PlannedDeletes, dict[int, RebasedPlace]] | None:
        """Return how rows of a newer base are deleted, and the places whose deletes have to be written anew for it.

        Args:
            lake: The lake table at the newer base, which has the same rows.
            results: What each piece of the plan wrote.
            guard: The guard of the round, by which files have their names.

        Returns:
            The places by the number of their last piece; None if rows cannot be deleted by position any more.

        Raises:
            FlussTieringError: STORAGE if the lake cannot be read.
        """
        live = _live(lake, self.live.keys(), plan) if self.live else {}
        if live.keys() != self.live.keys():
            return None
        numbers_of: dict[LakePlace, list[int]] = defaultdict(list)
        for number, piece in enumerate(plan.pieces):
            numbers_of[self._place_of(piece)].append(number)
        places = {}
        for place, before in self.live.items():
            if {file.location: file for file in live[place]} == {file.location: file for file in before}:
                continue
            files = [file for number in numbers_of[place] for file in results[number].files]
            deletes = tuple(file for file in files if file.referenced)
            touched = {location for file in deletes for location in file.referenced}
            if not deletes:
                continue
            bucket, values = place
            number = numbers_of[place][-1]
            name = f"{round_file_name(number, guard.claim.tiering_epoch, guard.attempt)}-{lake.base()}"
            places[number] = RebasedPlace(
                bucket,
                lake.piece_location(bucket, name, values),
                values,
                tuple(live[place]),
                deletes,
                tuple(file for file in before if file.location in touched),
                _added(files),
            )
        return replace(self, live=live), places

    def tasks(self, limits: PlanLimits) -> int:
        """Return how many tasks the second stage has; 0 if there is none."""
        return min(len(self.live.keys() & self.shared), limits.parallelism)

    def noted(
        self, lake: LakeTable, pieces: Sequence[Piece], results: Sequence[PieceResult], guard: RoundGuard
    ) -> dict[int, NotedPlace]:
        """Return the places whose deletes are to be written, each under the number of its last piece.

        Args:
            pieces: The pieces that were written.
            results: What each of them wrote.
            guard: The guard of the round, by which files have their names.
        """
        last: dict[LakePlace, int] = {}
        keys_of: dict[LakePlace, dict[int, list[PieceKeys]]] = defaultdict(lambda: defaultdict(list))
        files_of: dict[LakePlace, list[LakeFile]] = defaultdict(list)
        for number, (piece, result) in enumerate(zip(pieces, results, strict=True)):
            if result.keys is not None:
                place = self._place_of(piece)
                last[place] = number
                keys_of[place][piece.ordinal].append(result.keys)
                files_of[place] += result.files
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
                _added(files_of[bucket, values]),
            )
        return places

    def _place_of(self, piece: Piece) -> LakePlace:
        return self.place(piece.bucket.bucket, piece.partition_values)


def with_deletes(
    results: Sequence[PieceResult], deletes: Mapping[int, PieceResult], outdated: Collection[LakeFile] = ()
) -> list[PieceResult]:
    """Return the results of pieces, with what a stage wrote under the number of a piece, without outdated deletes."""
    gone = {file.location for file in outdated}
    joined = [
        replace(each, files=tuple(file for file in each.files if file.location not in gone)) if gone else each
        for each in results
    ]
    for number, wrote in deletes.items():
        piece = joined[number]
        joined[number] = replace(
            piece,
            files=(*piece.files, *wrote.files),
            peak_bytes=max(piece.peak_bytes, wrote.peak_bytes),
        )
    return joined


def _live(lake: LakeTable, places: Collection[LakePlace], plan: RoundPlan) -> dict[LakePlace, Sequence[LiveDataFile]]:
    """Return the files that rows are deleted of. Whatever the lake holds of a place that is read again is removed."""
    return {place: () if place in plan.read_again else files for place, files in lake.live_files(places).items()}


def _added(files: Iterable[LakeFile]) -> dict[str, RowPartition]:
    data = (file for file in files if file.content is FileContent.DATA)
    return {each.location: each.partition_values if each.row_partition is None else each.row_partition for each in data}
