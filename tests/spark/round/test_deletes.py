"""How the pieces of a plan delete rows, and the second stage, which writes the deletes that pieces have noted."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine_support import table_info
from fluss_tiering.lake.files import (
    ANY_BUCKET,
    FileContent,
    FileMetrics,
    LakeFile,
    LakePlace,
    LiveDataFile,
    NotedPlace,
    RebasedPlace,
)
from fluss_tiering.lake.names import round_file_name
from fluss_tiering.lake.object_store import ExpiredCredentialsError
from fluss_tiering.model.table import KvSnapshot, TableBucket
from fluss_tiering.spark.round import deletes as deletes_module
from fluss_tiering.spark.round.deletes import DeleteJob, PlannedDeletes, with_deletes
from fluss_tiering.spark.round.pieces import PieceWork
from fluss_tiering.spark.round.plan import LogPiece, Piece, PlanLimits, RoundPlan, SnapshotPiece
from fluss_tiering.spark.round.result import PieceResult

TABLE = table_info(7)
MON, TUE = ("mon",), ("tue",)
ALONE = LiveDataFile("alone.parquet", (), 5), LiveDataFile("alone-2.parquet", (), 5)
SHARED = (LiveDataFile("shared.parquet", (), 5),)
NEVER = cast("Any", None)


def log_piece(bucket: int, ordinal: int = 0, values: tuple[str, ...] = MON) -> LogPiece:
    return LogPiece(TableBucket(7, bucket), 10 * ordinal, 10 * ordinal + 10, ordinal, partition_values=values)


def snapshot_piece(bucket: int, values: tuple[str, ...] = MON) -> SnapshotPiece:
    return SnapshotPiece(KvSnapshot(TableBucket(7, bucket), 3, 10, 1, 100, "kv/3"), partition_values=values)


def plan(*pieces: Piece, read_again: tuple[LakePlace, ...] = ()) -> RoundPlan:
    return RoundPlan(pieces, {}, {TableBucket(7, 0): 10}, advances=True, read_again=read_again)


def lake_file(location: str) -> LakeFile:
    return LakeFile(FileContent.DATA, 0, location, 1, FileMetrics(1))


def result(number: int, location: str, **known: Any) -> PieceResult:
    return PieceResult(number, 10, (lake_file(location),), **{"peak_bytes": 100, **known})


@dataclass
class Lake:
    """Knows the live files of two places."""

    by_position: bool = True
    asked: list[set[LakePlace]] = field(default_factory=list)

    def place(self, bucket: int, partition_values: tuple[str, ...]) -> LakePlace:
        return bucket, partition_values

    def live_files(self, places: Collection[LakePlace]) -> Mapping[LakePlace, Sequence[LiveDataFile]]:
        self.asked.append(set(places))
        known = {(0, MON): list(ALONE), (1, MON): list(SHARED)}
        return {place: known.get(place, []) for place in places} if self.by_position else {}

    def piece_location(self, bucket: int, name: str, partition_values: Sequence[str] = ()) -> str:
        return f"{'/'.join(partition_values)}/{bucket}/{name}"


def planned(plan: RoundPlan, lake: Lake | None = None) -> PlannedDeletes:
    return PlannedDeletes.of(cast("Any", lake or Lake()), TABLE, plan)


# What each piece does


def test_the_lake_is_asked_once_for_all_places_of_a_round():
    lake = Lake()
    planned(plan(log_piece(0), log_piece(1), log_piece(1, 1), log_piece(0, 0, TUE)), lake)
    assert lake.asked == [{(0, MON), (1, MON), (0, TUE)}]


def test_a_piece_that_is_alone_in_its_place_deletes_rows_of_the_place_s_files():
    deletes = planned(plan(log_piece(0), log_piece(0, 0, TUE), log_piece(1), log_piece(1, 1), snapshot_piece(2)))
    for piece, live in ((log_piece(0), ALONE), (log_piece(0, 0, TUE), ()), (snapshot_piece(2), ())):
        assert deletes.work_of(piece, "here") == PieceWork(piece, "here", live, notes_keys=False)
    for piece in (log_piece(1), log_piece(1, 1)):
        assert deletes.work_of(piece, "here") == PieceWork(piece, "here", None, notes_keys=True)


def test_a_snapshot_and_the_log_behind_it_share_their_place():
    deletes = planned(plan(snapshot_piece(0), log_piece(0, 1)))
    assert deletes.shared == {(0, MON)}
    assert deletes.work_of(snapshot_piece(0), "here").notes_keys


def test_pieces_of_all_buckets_share_the_place_of_a_lake_table_that_does_not_tell_them_apart():
    lake = Lake()
    lake.place = lambda _, values: (ANY_BUCKET, values)  # type: ignore[method-assign]
    deletes = planned(plan(log_piece(0), log_piece(1), log_piece(1, 0, TUE)), lake)
    for piece in (log_piece(0), log_piece(1)):
        noting = PieceWork(piece, "here", None, notes_keys=True, place=(ANY_BUCKET, MON))
        assert deletes.work_of(piece, "here") == noting
    alone = log_piece(1, 0, TUE)
    assert deletes.work_of(alone, "here") == PieceWork(alone, "here", (), place=(ANY_BUCKET, TUE))


def test_what_the_commit_removes_needs_no_deletes():
    deletes = planned(plan(log_piece(0), log_piece(1), read_again=((0, MON),)))
    assert deletes.work_of(log_piece(0), "here").live == ()
    assert deletes.work_of(log_piece(1), "here").live == SHARED


def test_pieces_delete_by_key_if_the_lake_says_so():
    both = plan(log_piece(1), log_piece(1, 1))
    deletes = planned(both, Lake(by_position=False))
    assert deletes.work_of(log_piece(1), "here") == PieceWork(log_piece(1), "here")
    assert deletes.tasks(PlanLimits(parallelism=9)) == 0
    assert deletes.in_one_commit(both) is both


def test_a_log_table_has_no_deletes_and_asks_the_lake_for_nothing():
    lake = Lake()
    deletes = PlannedDeletes.of(cast("Any", lake), table_info(7, primary_key=False), plan(log_piece(0), log_piece(0)))
    assert lake.asked == []
    assert deletes == PlannedDeletes({}, frozenset())


def test_all_pieces_are_in_one_commit():
    pieces = (snapshot_piece(0), log_piece(0, 1), log_piece(0, 2), log_piece(1))
    before = plan(*pieces)
    after = planned(before).in_one_commit(before)
    assert [piece.ordinal for piece in after.pieces] == [0, 0, 0, 0]
    assert after.pieces == (pieces[0], replace(pieces[1], ordinal=0), replace(pieces[2], ordinal=0), pieces[3])
    assert replace(after, pieces=pieces) == before, "nothing else is different"


@pytest.mark.parametrize(("parallelism", "tasks"), [(1, 1), (2, 2), (9, 2)])
def test_the_second_stage_has_a_task_for_each_shared_place_that_cores_are_there_for(parallelism: int, tasks: int):
    deletes = planned(plan(*(log_piece(bucket, ordinal) for bucket in (1, 2) for ordinal in (0, 1)), log_piece(0)))
    assert deletes.tasks(PlanLimits(parallelism=parallelism)) == tasks


# What the second stage does


def test_the_keys_of_a_place_are_in_the_order_of_its_ordinals():
    pieces = [log_piece(1, 2), log_piece(0), log_piece(1, 1), snapshot_piece(1), log_piece(1, 2), log_piece(1, 0, TUE)]
    keys = ["third", None, "second", "first", "third, too", "of tuesday"]
    results = [result(number, f"{number}", keys=each) for number, each in enumerate(keys)]
    guard = cast("Any", SimpleNamespace(claim=SimpleNamespace(tiering_epoch=17), attempt=uuid.UUID(int=5)))

    noted = planned(plan(*pieces)).noted(cast("Any", Lake()), pieces, results, guard)

    # The files have the name of the place's last piece.
    monday, tuesday = (round_file_name(number, 17, guard.attempt) for number in (4, 5))
    assert noted == {
        4: NotedPlace(
            1,
            f"mon/1/{monday}",
            MON,
            SHARED,
            cast("Any", (("first",), ("second",), ("third", "third, too"))),
            dict.fromkeys("0234", ()),
        ),
        5: NotedPlace(1, f"tue/1/{tuesday}", TUE, (), cast("Any", (("of tuesday",),)), {"5": ()}),
    }


def test_places_whose_files_were_rewritten_get_their_deletes_anew():
    lake, pieces = Lake(), [log_piece(0), log_piece(1), log_piece(1, 1), log_piece(0, 0, TUE)]
    deletes = planned(plan(*pieces), lake)
    gone = replace(lake_file("gone"), content=FileContent.POSITION_DELETES, referenced=("alone-2.parquet",))
    results = [result(number, f"{number}") for number in range(4)]
    results[0] = replace(results[0], files=(lake_file("0"), gone))
    compacted = {(0, MON): [LiveDataFile("new.parquet", (), 10)], (1, MON): [LiveDataFile("new-1.parquet", (), 5)]}
    newer = cast("Any", lake)
    newer.live_files = lambda places: {place: compacted.get(place, []) for place in places}
    newer.base = lambda: 77
    guard = cast("Any", SimpleNamespace(claim=SimpleNamespace(tiering_epoch=17), attempt=uuid.UUID(int=5)))

    found = deletes.rebased(newer, plan(*pieces), results, guard)

    assert found is not None
    after, places = found
    assert after == replace(deletes, live={**compacted, (0, TUE): []})
    # The place of bucket 1 has deleted nothing.
    where = f"mon/0/{round_file_name(0, 17, guard.attempt)}-77"
    assert places == {0: RebasedPlace(0, where, MON, tuple(compacted[0, MON]), (gone,), (ALONE[1],), {"0": ()})}
    newer.live_files = lambda places: {}
    assert deletes.rebased(newer, plan(*pieces), results, guard) is None


def test_a_result_that_is_missing_is_an_error():
    with pytest.raises(ValueError, match="zip"):
        planned(plan(log_piece(1))).noted(cast("Any", Lake()), [log_piece(1)], [], NEVER)


@dataclass(frozen=True)
class Writer:
    """Writes two files for each place, unless its credentials have ended."""

    expired: str | None = None

    def write_deletes(self, place: NotedPlace, attempt: int) -> list[LakeFile]:
        if place.location == self.expired:
            raise ExpiredCredentialsError("they expired at noon")
        return [lake_file(f"{place.location}-{attempt}-{number}") for number in range(2)]


def job(expired: str | None = None) -> DeleteJob:
    places = [NotedPlace(number, f"place-{number}", (), (), ()) for number in range(3)]
    return DeleteJob(TABLE, cast("Any", Writer(expired)), places, 2)


@pytest.mark.parametrize("attempt", [0, 17])
def test_a_task_writes_the_deletes_of_the_places_that_it_was_given(monkeypatch, attempt: int):
    task = SimpleNamespace(taskAttemptId=lambda: attempt)
    # Outside of Spark there is the attempt 0.
    monkeypatch.setattr(deletes_module, "TaskContext", SimpleNamespace(get=lambda: task if attempt else None))
    first, second = job()([2, 0])
    for number, found in ((2, first), (0, second)):
        assert found.piece == number
        assert [file.location for file in found.files] == [f"place-{number}-{attempt}-{each}" for each in range(2)]
        assert isinstance(found.files, tuple)
        assert found.rows == 0, "rows are counted where they are read"
        assert found.peak_bytes > 1 << 20
        assert (found.expired, found.keys) == (None, None)


def test_a_task_whose_credentials_end_tells_which_places_are_left():
    results = list(job(expired="place-1")(range(3)))
    assert [(each.piece, each.expired) for each in results] == [
        (0, None),
        (1, "they expired at noon"),
        (2, "they expired at noon"),
    ]


def test_deletes_count_as_what_the_last_piece_of_their_place_wrote():
    pieces = [result(0, "a", peak_bytes=100), result(1, "b", peak_bytes=900), result(2, "c")]
    wrote = {
        1: PieceResult(0, 0, (lake_file("deletes of b"),), 500),
        0: PieceResult(1, 0, (lake_file("deletes of a"), lake_file("more")), 500),
    }
    joined = with_deletes(pieces, wrote)
    assert [[file.location for file in each.files] for each in joined] == [
        ["a", "deletes of a", "more"],
        ["b", "deletes of b"],
        ["c"],
    ]
    assert [each.peak_bytes for each in joined] == [500, 900, 100]
    assert [(each.piece, each.rows) for each in joined] == [(0, 10), (1, 10), (2, 10)]
