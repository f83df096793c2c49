"""The pieces of a stage whose credentials for the lake end meanwhile: what was written stays, the rest is done again.

Executors do not talk to the lake catalog, so that they need none of its secrets. A task whose credentials have ended
says which of its pieces are left. The driver gets new credentials from the catalog, and runs a stage with these pieces.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from fluss_tiering.lake.protocol import LakeTable
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.plural import counted
from fluss_tiering.spark.round.deletes import DeleteJob
from fluss_tiering.spark.round.pieces import StageJob
from fluss_tiering.spark.round.result import PieceResult

logger = logging.getLogger(__name__)

JobT = TypeVar("JobT", StageJob, DeleteJob)


def write_all(run_stage: Callable[[JobT], list[PieceResult]], lake: LakeTable, job: JobT) -> list[PieceResult]:
    """Run a stage until all of its pieces are written, and return their results in the order of the pieces.

    It goes on as long as each stage with new credentials writes at least one piece.

    Args:
        run_stage: Runs a stage once.
        job: The work of the stage.

    Raises:
        FlussTieringError: STORAGE if the credentials ended and new ones did not help; otherwise what `run_stage` or the
            lake raises. The files that were written are deleted.
    """
    written: dict[int, PieceResult] = {}
    left = list(range(len(job.work)))
    part, renewed = job, False
    try:
        while True:
            results = [replace(result, piece=left[result.piece]) for result in run_stage(part)]
            done = {result.piece: result for result in results if result.expired is None}
            written |= done
            left = [result.piece for result in results if result.expired is not None]
            if not left:
                return [written[number] for number in sorted(written)]
            said = next(result.expired for result in results if result.expired is not None)
            if renewed and not done:
                raise _ended(job, f"new ones that the lake catalog gave did not help: {said}")
            writer = lake.file_writer(renew=True)
            if writer == part.writer:
                raise _ended(job, f"the lake catalog has no others: {said}")
            logger.warning(
                "the credentials of the lake table %s ended: %d of %s will be written with new ones (%s)",
                job.table.lake_path,
                len(left),
                counted(len(job.work), "piece"),
                said,
            )
            work = tuple(job.work[number] for number in left)
            part, renewed = replace(job, writer=writer, work=work, tasks=min(job.tasks, len(work))), True
    except FlussTieringError:
        lake.delete_files([file for result in written.values() for file in result.files])
        raise


def _ended(job: StageJob | DeleteJob, said: str) -> FlussTieringError:
    return FlussTieringError(
        ErrorCode.STORAGE,
        f"the credentials of the lake table {job.table.lake_path} ended in the middle of the round, and {said}. "
        "Nothing was committed, and the next round tiers everything. Expected credentials that are valid while a piece "
        "is written: let the lake catalog vend some that live longer, or give Spark keys that do not expire",
    )
