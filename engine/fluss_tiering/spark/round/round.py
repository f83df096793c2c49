"""The round of one table, from the claim to the outcome: recover, plan, read and write, commit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from fluss_tiering.client.security import ClientSecurity
from fluss_tiering.lake.files import LakeFile
from fluss_tiering.lake.names import round_file_name
from fluss_tiering.lake.protocol import LakeTable
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.table import (
    BucketInfo,
    KvSnapshot,
    TableBucket,
    TableInfo,
    partition_name,
)
from fluss_tiering.model.table_options import keeps_existing_rows
from fluss_tiering.model.tiering import Claim, TieringStats
from fluss_tiering.spark.retry import Retry
from fluss_tiering.spark.round.commit import LakeRewrittenError, commit_round, open_lake_table, recover
from fluss_tiering.spark.round.deletes import DeleteJob, PlannedDeletes, with_deletes
from fluss_tiering.spark.round.keepalive import RoundGuard
from fluss_tiering.spark.round.lease import TableLease
from fluss_tiering.spark.round.lost_log import lost_logs
from fluss_tiering.spark.round.pieces import StageJob
from fluss_tiering.spark.round.plan import Piece, PlanLimits, RoundPlan, plan_round
from fluss_tiering.spark.round.renewal import JobT, write_all
from fluss_tiering.spark.round.result import PieceResult, RoundCost, RoundOutcome, total_stats
from fluss_tiering.spark.round.services import RoundServices, job_group
from fluss_tiering.spark.round.stage import Job
from fluss_tiering.spark.round.waves import after, tasks_of, time_limit_s, waves
from fluss_tiering.storage.open import cluster_access, open_offsets_reader, open_split_reader
from fluss_tiering.storage.reading import measured

logger = logging.getLogger(__name__)
_MOST_CONFLICTS: Final = 2
"""So often a round reads again because rows of the lake table were changed that it removes or deletes."""
_REWRITTEN_FOR_S: Final = 120.0
"""So long a round tries to commit while somebody only rewrites data files."""
_MAX_PIECES_IN_JOB: Final = 4096
"""The greatest number of pieces whose results the driver receives at once. It then packs them."""


def run_round(services: RoundServices, table: TableInfo, lease: TableLease, guard: RoundGuard) -> RoundOutcome:
    """Tier what a table holds now.

    Raises:
        FlussTieringError: the code of whatever failed. Nothing of the round is then in the lake, unless the lake's
            commit was the last step that worked. In this case the next round registers the lake snapshot.
    """
    conflicts = 0
    while True:
        try:
            return _run_once(services, table, lease, guard)
        except _ConflictError as conflict:
            if not conflict.worth_reading_again or conflicts == _MOST_CONFLICTS:
                raise conflict.cause from None
            conflicts += 1
            logger.info("%s is read again: %s", table.path, conflict.cause.message)


class _ConflictError(Exception):
    """The error of a round whose files do not fit the newest snapshot of the lake table, and were deleted.

    Reading again helps a round that removes data files or deletes rows of them, if these were changed meanwhile.
    """

    def __init__(self, cause: FlussTieringError, *, worth_reading_again: bool) -> None:
        super().__init__(cause.message)
        self.cause = cause
        self.worth_reading_again = worth_reading_again


@dataclass(frozen=True, slots=True)
class _Written:
    """What a round has written and not committed yet.

    Attributes:
        lake: The lake table at the base that the files are for.
        plan: The plan of what was read.
        pieces: What each piece of the plan wrote.
        deletes: How the pieces delete rows.
    """

    lake: LakeTable
    plan: RoundPlan
    pieces: Sequence[PieceResult]
    deletes: PlannedDeletes

    @property
    def files(self) -> list[LakeFile]:
        return [file for piece in self.pieces for file in piece.files]


def _run_once(services: RoundServices, table: TableInfo, lease: TableLease, guard: RoundGuard) -> RoundOutcome:
    """Tier what a table holds now, from the present state of the lake.

    Raises:
        _ConflictError: Somebody has changed the lake table. Nothing was committed.
    """
    now = services.runtime.monotonic
    began = now()
    services.progress.step(table.path, "planning")
    table, lake, plan, limits = _planned(services, table, lease, guard.claim)
    planned = now()
    if not plan.advances:
        return RoundOutcome(TieringStats(), cost=RoundCost(plan=planned - began))
    written = _read_and_write(services, table, lake, (plan, limits), guard)
    stage_ended = now()
    services.progress.step(table.path, "committing")
    snapshot_id, written = _commit(services, table, written, limits, guard)
    plan, pieces = written.plan, written.pieces
    cost = RoundCost(
        plan=planned - began,
        stage=stage_ended - planned,
        commit=now() - stage_ended,
        peak_worker_bytes=max((piece.peak_bytes for piece in pieces), default=0),
    )
    changed = {
        partition_name(piece.partition_values)
        for piece, result in zip(plan.pieces, pieces, strict=True)
        if result.rows and piece.partition_values
    }
    stats = total_stats(pieces, changed, snapshot_id, written.lake.size(snapshot_id))
    return RoundOutcome(stats, plan.complete, cost)


def _commit(
    services: RoundServices, table: TableInfo, written: _Written, limits: PlanLimits, guard: RoundGuard
) -> tuple[int, _Written]:
    """Commit what a round has written, and return the lake snapshot, and what it has.

    As long as somebody only rewrites files meanwhile, the deletes by position are written anew and the commit is tried
    again, with pauses that grow.

    Raises:
        FlussTieringError: What `commit_round` raises; `LakeRewrittenError` if files were rewritten during each try.
        _ConflictError: Somebody has changed rows of the lake table.
    """
    conflict: FlussTieringError | None = None

    def try_once() -> int:
        nonlocal written, conflict
        if conflict is not None:
            written = _rebased(services, table, written, limits, guard, conflict=conflict)
        try:
            return commit_round(services.client, written.lake, written.plan, written.pieces, table=table, guard=guard)
        except FlussTieringError as error:
            conflict = error
            raise

    conflicts = frozenset({ErrorCode.LAKE_CONFLICT})
    retry = Retry(services.runtime.new_event(), conflicts, _REWRITTEN_FOR_S, runtime=services.runtime)
    try:
        return retry(try_once), written
    except FlussTieringError as error:
        if error.code is not ErrorCode.LAKE_CONFLICT:
            raise
        written.lake.delete_files(written.files)
        raise LakeRewrittenError(error) from None


def _rebased(
    services: RoundServices,
    table: TableInfo,
    written: _Written,
    limits: PlanLimits,
    guard: RoundGuard,
    *,
    conflict: FlussTieringError,
) -> _Written:
    """Return what a round has written for the newest snapshot of the lake table, which has the same rows as its base.

    Raises:
        FlussTieringError: The reason why the round was lost.
        _ConflictError: The snapshot has other rows, or the deletes could not be written anew.
    """
    try:
        newer = _on_newer_base(services, table, written, limits, guard)
    except FlussTieringError as error:
        logger.info("the deletes of %s could not be written anew: %s", table.path, error.message)
        newer = None
    if newer is not None:
        return newer
    written.lake.delete_files(written.files)
    guard.check()
    by_position = any(file.referenced for file in written.files)
    raise _ConflictError(conflict, worth_reading_again=by_position or bool(written.plan.read_again))


def _on_newer_base(
    services: RoundServices, table: TableInfo, written: _Written, limits: PlanLimits, guard: RoundGuard
) -> _Written | None:
    """Return what a round has written for the newest snapshot; None if that has other rows than the round's base.

    Raises:
        FlussTieringError: The lake cannot be read or written.
    """
    lake = services.catalog.find_table(table)
    base = written.lake.base()
    if lake is None or base is None or not lake.only_rewritten_since(base):
        return None
    rebased = written.deletes.rebased(lake, written.plan, written.pieces, guard)
    if rebased is None:
        return None
    deletes, places = rebased
    if not places:
        return replace(written, lake=lake, deletes=deletes)
    job = DeleteJob(table, lake.file_writer(), tuple(places.values()), min(len(places), limits.parallelism))
    wrote = _written(services, lake, job, guard)
    outdated = [file for place in places.values() for file in place.deletes]
    lake.delete_files(outdated)
    pieces = with_deletes(written.pieces, dict(zip(places, wrote, strict=True)), outdated)
    return replace(written, lake=lake, deletes=deletes, pieces=pieces)


def _planned(
    services: RoundServices, table: TableInfo, lease: TableLease, claim: Claim
) -> tuple[TableInfo, LakeTable, RoundPlan, PlanLimits]:
    """Return the table with all columns of the rows of the plan, its lake table, the plan, and the plan's limits.

    Columns may be changed at any time, even while this runs. Rows with the new ones come after that. So the table is
    asked for once more after the ends of the logs, and if it has other columns than the lake table was opened for, this
    begins anew, as it does if the lake table follows newer ones already. Fluss adds a column to the lake table first.
    """
    while True:
        try:
            # The lake table is opened first: whatever another driver commits after this makes our commit fail.
            lake = open_lake_table(services.client, services.catalog, table)
        except FlussTieringError as error:
            altered = _altered(services, table) if error.code is ErrorCode.LAKE_TABLE_MISMATCH else None
            if altered is None:
                raise
            table = altered
            continue
        known = recover(services.client, lake, table, claim, open_offsets_reader(services.storage, table))
        tiered = {} if known is None else known.log_end_offsets
        plan, limits = _plan(services, table, tiered, lake, partial(lease.snapshots, claim))
        altered = _altered(services, table) if plan.pieces else None
        if altered is None:
            return table, lake, plan, limits
        table = altered


def _altered(services: RoundServices, table: TableInfo) -> TableInfo | None:
    """Return the table if its columns were altered since it was asked for."""
    (present,) = services.client.get_tables([table.path])
    # The commit of a round refuses another table that has this path now.
    if present.table_id != table.table_id or present.schema_id == table.schema_id:
        return None
    logger.info(
        "the columns of %s were altered: the round is planned again with schema %d", table.path, present.schema_id
    )
    return present


def _plan(
    services: RoundServices,
    table: TableInfo,
    tiered: Mapping[TableBucket, int],
    lake: LakeTable,
    lease_snapshots: Callable[[Sequence[BucketInfo]], Mapping[TableBucket, KvSnapshot]],
) -> tuple[RoundPlan, PlanLimits]:
    """Return the plan, and the limits by which it was made."""
    buckets = services.client.list_buckets([table.path])[table.path]
    from_snapshot = [info for info in buckets if tiered.get(info.bucket, -1) < 0]
    if services.skip_missing_log:
        lost = lost_logs(buckets, tiered, has_primary_key=table.has_primary_key)
        from_snapshot += [each.info for each in lost]
    snapshots: Mapping[TableBucket, KvSnapshot] = {}
    if table.has_primary_key and from_snapshot:
        leased = lease_snapshots(from_snapshot)
        snapshots = measured(lambda: open_split_reader(services.storage, services.target), table, leased)
        # The ends are read again: a snapshot that was leased just now may end behind the first end of the log.
        buckets = services.client.list_buckets([table.path])[table.path]
    # An empty round does not wait for executors.
    reads = any(info.log_end_offset > tiered.get(info.bucket, 0) for info in buckets)
    limits = services.present_limits() if reads else services.limits
    plan = plan_round(
        has_primary_key=table.has_primary_key,
        tiered=tiered,
        buckets=buckets,
        snapshots=snapshots,
        limits=limits,
        replaced=_replaced(table, lake, buckets, tiered),
        skip_missing_log=services.skip_missing_log,
    )
    for bucket, values in plan.read_again:
        if lake.place(bucket, values) != (bucket, values):
            raise FlussTieringError(
                ErrorCode.LOG_OFFSET_OUT_OF_RANGE,
                f"a part of the log of bucket {bucket} of {table.path} was deleted before it was tiered, and the "
                f"files of the lake table {table.lake_path} do not tell buckets apart, so that the rows of this bucket "
                "alone cannot be replaced: drop or rename the lake table, and the next round writes it anew",
            )
    for each in plan.skipped:
        logger.warning("%s goes on without a part of its log, as it was told to: %s", table.path, each)
    return plan, limits


def _replaced(
    table: TableInfo, lake: LakeTable, buckets: Sequence[BucketInfo], tiered: Mapping[TableBucket, int]
) -> set[TableBucket]:
    """Return the buckets that were never tiered, but for which the lake holds rows.

    They are of an earlier partition, or were there before tiering.
    """
    descriptor = table.descriptor
    if not (descriptor.primary_key and (descriptor.partition_keys or keeps_existing_rows(descriptor.properties))):
        return set()
    new: dict[tuple[str, ...], list[TableBucket]] = {}
    for info in buckets:
        if info.log_end_offset > 0 and tiered.get(info.bucket, -1) < 0:
            new.setdefault(info.partition_values, []).append(info.bucket)
    places = {values: [bucket.bucket for bucket in of_partition] for values, of_partition in new.items()}
    held = lake.partitions_with_rows(places) if places else ()
    return {bucket for values in held for bucket in new[values]}


def _read_and_write(
    services: RoundServices,
    table: TableInfo,
    lake: LakeTable,
    planned: tuple[RoundPlan, PlanLimits],
    guard: RoundGuard,
) -> _Written:
    """Read and write the pieces of a plan, as far as the time allows."""
    plan, limits = planned
    if not plan.pieces:
        return _Written(lake, plan, (), PlannedDeletes({}, frozenset()))
    limit_s = time_limit_s(table.descriptor.properties, services.max_round_duration)
    parts = [plan.pieces] if limit_s is None else list(waves(plan, limits))
    # Each job is a part of a wave that the driver can hold the results of.
    jobs = [list(_batches(pieces, _MAX_PIECES_IN_JOB)) for pieces in parts]
    tasks = sum(tasks_of(pieces, limits.parallelism) for of_part in jobs for pieces in of_part)
    deletes = PlannedDeletes.of(lake, table, plan)
    services.progress.stage(table.path, job_group(guard), tasks + deletes.tasks(limits), plan.pieces)
    done: list[Piece] = []
    results: list[PieceResult] = []
    try:
        for of_part in jobs:
            if done and limit_s is not None and services.runtime.monotonic() - guard.began >= limit_s:
                break
            for pieces in of_part:
                guard.check()
                names = [
                    # The attempt's id keeps files that another attempt may still write from being overwritten.
                    round_file_name(number, guard.claim.tiering_epoch, guard.attempt)
                    for number in range(len(done), len(done) + len(pieces))
                ]
                work = tuple(
                    deletes.work_of(piece, lake.piece_location(piece.bucket.bucket, name, piece.partition_values))
                    for piece, name in zip(pieces, names, strict=True)
                )
                job = StageJob(
                    table,
                    services.storage,
                    services.target,
                    lake.file_writer(),
                    work,
                    tasks_of(pieces, limits.parallelism),
                    access=cluster_access(services.storage),
                    buffer_bytes=services.buffer_bytes,
                    security=ClientSecurity.from_environment().for_executors(guard.claim.executor_token),
                )
                results += _written(services, lake, job, guard)
                done += pieces
        if noted := deletes.noted(lake, done, results, guard):
            guard.check()
            places = DeleteJob(table, lake.file_writer(), tuple(noted.values()), deletes.tasks(limits))
            wrote = _written(services, lake, places, guard)
            results = with_deletes(results, dict(zip(noted, wrote, strict=True)))
    except FlussTieringError:
        lake.delete_files([file for result in results for file in result.files])
        raise
    return _Written(lake, deletes.in_one_commit(after(plan, done)), results, deletes)


def _written(services: RoundServices, lake: LakeTable, job: JobT, guard: RoundGuard) -> list[PieceResult]:
    """Run a stage until all of its work is done, and return what it wrote in a form that takes little memory."""
    results = write_all(partial(_run, services, guard), lake, job)
    return [replace(result, files=lake.packed(result.files)) for result in results]


def _run(services: RoundServices, guard: RoundGuard, job: Job) -> list[PieceResult]:
    return services.run_stage(services.spark, job, job_group(guard), guard)


def _batches(pieces: Sequence[Piece], size: int) -> Iterator[Sequence[Piece]]:
    for start in range(0, len(pieces), size):
        yield pieces[start : start + size]
