"""What all rounds of an application share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from fluss_tiering.client import TieringClient
from fluss_tiering.lake.protocol import LakeCatalog
from fluss_tiering.model.table import StorageDescription
from fluss_tiering.spark.round.keepalive import RoundGuard
from fluss_tiering.spark.round.plan import PlanLimits
from fluss_tiering.spark.round.progress import Progress
from fluss_tiering.spark.round.reduce import DEFAULT_BUFFER_BYTES
from fluss_tiering.spark.round.result import PieceResult
from fluss_tiering.spark.round.stage import Job, cancel_stage, run_stage
from fluss_tiering.spark.runtime import SYSTEM, Runtime


@dataclass(frozen=True, slots=True)
class RoundServices:
    """What all rounds of an application share.

    Attributes:
        spark: The session that runs the stages.
        catalog: The lake's catalog.
        storage: The description of the storage that executors read from.
        target: The server's address, "host:port".
        limits: How large pieces and rounds may be.
        parallelism: Tells how many tasks run at the same time, when a round has something to read. None if the limits
            say it.
        buffer_bytes: How many bytes of changes a task holds in memory.
        progress: Hears of each step of a round.
        max_round_duration: The limit that the application was given (see `waves.time_limit_s`).
        skip_missing_log: Whether rounds go on if a log was deleted before it was tiered (see `plan_round`).
        runtime: The clock and the threads of the rounds.
        run_stage: Runs the Spark stage of a round.
        cancel_stage: Ends the Spark stage of a round, from any thread.
    """

    client: TieringClient
    spark: SparkSession
    catalog: LakeCatalog
    storage: StorageDescription
    target: str
    limits: PlanLimits
    progress: Progress
    parallelism: Callable[[], int] | None = None
    buffer_bytes: int = DEFAULT_BUFFER_BYTES
    max_round_duration: str | None = None
    skip_missing_log: bool = False
    runtime: Runtime = SYSTEM
    run_stage: Callable[[SparkSession, Job, str, RoundGuard], list[PieceResult]] = run_stage
    cancel_stage: Callable[[SparkSession, str], None] = cancel_stage

    def present_limits(self) -> PlanLimits:
        """Return the limits with the number of tasks that run at the same time now."""
        return self.limits if self.parallelism is None else replace(self.limits, parallelism=self.parallelism())


def job_group(guard: RoundGuard) -> str:
    """Return the name of a round's Spark job group.

    Spark refuses all later jobs of a group that was cancelled, so a session that tiers tables of two servers must not
    have one name for two rounds.
    """
    return f"fluss-tiering-{guard.claim.table_id}-{guard.claim.tiering_epoch}-{guard.attempt.hex[:8]}"
